"""What a call can see of the state: unrelated changes do not matter to it, related ones do."""

from __future__ import annotations

import pytest

from obsspec.values import Context, Exchange, Observation, ToolCall
from obsspec.world.memory.names import names_of
from obsspec.world.memory.situation import Situation, Situations


def shell(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


def python(code: str) -> ToolCall:
    return ToolCall("python", {"code": code})


def sql(query: str) -> ToolCall:
    return ToolCall("sql", {"query": query})


def situation(before: list[ToolCall], call: ToolCall) -> Situation:
    history = tuple(Exchange((each,), (Observation(""),)) for each in before)
    situations = Situations()
    return situations.situation(situations.walk(Context((), (), (call,), history)), call)


def same(first: list[ToolCall], second: list[ToolCall], call: ToolCall) -> bool:
    return situation(first, call).sight == situation(second, call).sight


def test_a_write_matters_to_who_reads_it_and_to_nobody_else() -> None:
    write = shell("echo x > /data/a.txt")
    assert not same([], [write], shell("cat /data/a.txt"))
    assert not same([], [write], shell("ls /data"))
    assert same([], [write], shell("cat /data/b.txt"))
    assert same([], [write], shell("ls /other"))


def test_reads_do_not_matter() -> None:
    assert same([], [shell("ls /data"), shell("cat /data/a.txt | wc -l")], shell("cat /data/a.txt"))


def test_the_order_of_unrelated_writes_does_not_matter() -> None:
    one, two = shell("echo 1 > /a"), shell("echo 2 > /b")
    assert same([one, two], [two, one], shell("cat /a"))
    assert same([one, two], [two, one], shell("cat /a /b"))


def test_the_order_of_writes_to_one_file_matters() -> None:
    one, two = shell("echo 1 >> /a"), shell("echo 2 >> /a")
    assert not same([one, two], [two, one], shell("cat /a"))


def test_a_copy_depends_on_what_was_copied() -> None:
    copy = shell("cp /a /b")
    assert not same([copy], [shell("echo x > /a"), copy], shell("cat /b"))
    assert same([copy], [copy, shell("echo x > /a")], shell("cat /b"))


def test_a_command_nobody_understands_changes_everything() -> None:
    unknown = shell("./configure-all --now")
    assert not same([], [unknown], shell("cat /data/a.txt"))
    assert not same([unknown], [unknown, unknown], shell("cat /data/a.txt"))
    assert not same([shell("echo x > /a"), unknown], [unknown], shell("cat /b"))


def test_the_working_directory_is_part_of_the_state() -> None:
    assert not same([], [shell("cd /data")], shell("ls"))
    assert not same([shell("cd /tmp")], [shell("cd /data")], shell("cat a.txt"))
    assert same([shell("cd /data")], [shell("cd /tmp"), shell("cd /data")], shell("cat a.txt"))
    assert not same([shell("cd /data")], [shell("cd /data"), shell("echo x > /data/a.txt")], shell("cat a.txt"))


def test_a_directory_that_is_not_there_is_not_entered() -> None:
    failed = Exchange((shell("cd /nowhere"),), (Observation("bash: cd: /nowhere: No such file or directory"),))
    situations = Situations()
    walk = situations.walk(Context((), (), (), (failed,)))
    assert situations.situation(walk, shell("cat /a")).walk.cwd == Situations().walk(Context((), (), ())).cwd


def test_statements_that_change_a_database_matter_and_queries_do_not() -> None:
    query = sql("SELECT * FROM t")
    assert same([], [sql("SHOW TABLES"), sql("Let me think about the tables.")], query)
    assert not same([], [sql("DELETE FROM t")], query)


def test_python_sees_the_variables_it_reads_and_no_others() -> None:
    assert not same([], [python("x = 1")], python("print(x)"))
    assert same([], [python("y = 1")], python("print(x)"))
    assert same([python("x = 1")], [python("y = 2"), python("x = 1")], python("print(x)"))
    assert same([], [python("x = 1")], python("x = 2\nprint(x)"))


def test_python_follows_what_was_computed_from_what() -> None:
    later = python("z = x + 1")
    assert not same([python("x = 1"), later], [python("x = 2"), later], python("print(z)"))
    assert not same([python("a = []")], [python("a = []"), python("a.append(1)")], python("print(a)"))


def test_a_function_sees_its_globals_when_it_is_called() -> None:
    define = python("def f():\n    return x")
    assert not same([define, python("x = 1")], [define, python("x = 2")], python("print(f())"))


@pytest.mark.parametrize("code", ["exec(text)", "from math import *", "%run a.py", "!ls", "globals()['x'] = 1"])
def test_python_that_may_do_anything_is_said_to(code: str) -> None:
    assert names_of(code) is None


def test_python_that_is_never_run_touches_nothing() -> None:
    names = names_of("x = (1")
    assert names is not None
    assert not names.reads | names.writes


def test_names_of_comprehensions_and_imports_are_their_own() -> None:
    names = names_of("import math\ntotal = sum(math.sqrt(i) for i in values)")
    assert names is not None
    assert names.reads == {"values"}
    assert names.writes == {"math", "total"}


def test_following_a_rollout_call_by_call_is_following_it_at_once() -> None:
    calls = [shell("echo x > /a"), shell("cd /tmp"), shell("make"), shell("ls")]
    situations = Situations()
    history: tuple[Exchange, ...] = ()
    for call in calls:
        situations.walk(Context((), (), (call,), history))
        history = (*history, Exchange((call,), (Observation("out"),)))
    stepwise = situations.walk(Context((), (), (), history))
    at_once = Situations().walk(Context((), (), (), history))
    assert (stepwise.state.whole, stepwise.cwd, stepwise.seen) == (at_once.state.whole, at_once.cwd, at_once.seen)


def test_programs_that_may_change_anything_likely_change_nothing() -> None:
    def likely(before: list[ToolCall], call: ToolCall) -> bytes:
        return situation(before, call).likely

    look, run, edit = shell("cat a.py"), shell("python3 a.py"), shell("sed -i s/a/b/ a.py")
    assert not same([], [run], look)
    assert likely([], look) == likely([run], look) == likely([shell("git status"), run], look)
    assert likely([edit], look) == likely([run, edit, run], look) != likely([run], look)
    assert likely([shell("touch b.py")], look) == likely([], look)
    book = ToolCall("book_flight", {"id": 1})  # of other tools nobody knows what they change
    assert likely([book], ToolCall("get_user", {})) != likely([], ToolCall("get_user", {}))


def test_programs_do_not_move_the_shell() -> None:
    look = shell("cat a.txt")
    assert situation([shell("make")], look).touch.reads == situation([], look).touch.reads == frozenset({"?/a.txt"})
    assert situation([shell("cd /x && make")], look).touch.reads == frozenset({"/x/a.txt"})
    assert situation([shell(". ./env")], look).touch.reads is None
