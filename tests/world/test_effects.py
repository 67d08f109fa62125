"""What calls may read and change: never less than they do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obsspec.values import ToolCall
from obsspec.world.effects import START, UNKNOWN, Effects, ToolKind, effects, kind_of, overlap, script_of
from obsspec.world.memory.calls import read


def of(script: str, cwd: str | None = "/w") -> Effects:
    return effects(ToolCall("bash", {"command": script}), cwd)


@pytest.mark.parametrize(
    ("script", "reads", "writes"),
    [
        ("cat a ../b", {"/w/a", "/b"}, set()),
        ("ls", {"/w"}, set()),
        ("grep -rn x src", {"/w/src"}, set()),
        ("grep x f | sort > out", {"/w/f"}, {"/w/out"}),
        ("echo hi >> log 2>/dev/null", set(), {"/w/log"}),
        ("cd /t && cat f > g", {"/t/f"}, {"/t/g"}),
        ("mkdir -p a/b", {"/w/a/b"}, {"/w/a/b"}),
        ("cp a b", {"/w/a", "/w/b"}, {"/w/b"}),
        ("mv a b", {"/w/a", "/w/b"}, {"/w/a", "/w/b"}),
        ("rm -rf d/*.o", {"/w/d"}, {"/w/d"}),
        ("sed -i s/a/b/ f", {"/w/f"}, {"/w/f"}),
        ("sed s/a/b/ f", {"/w/f"}, set()),
        ("find d -name x -delete", {"/w/d"}, {"/w/d"}),
        ("find d -exec rm {} ;".replace(";", "\\;"), {"/w/d"}, {"/w/d"}),
        ("find d -type f", {"/w/d"}, set()),
        ("tar -xf a.tar -C out", {"/w/a.tar"}, {"/w/out"}),
        ("sort -o f g", {"/w/g", "/w/f"} - {"/w/f"}, {"/w/f"}),
        ("for f in a b; do cat $f; done", {"/w/a", "/w/b"}, set()),
        ("bash -c 'cat a > b'", {"/w/a"}, {"/w/b"}),
        ("python3 -c \"print(open('a').read())\"", {"/w/a"}, set()),
        ("python3 -c \"import json; json.dump(1, open('a', 'w'))\"", {"/w/a"}, {"/w/a"}),
    ],
)
def test_known_programs(script: str, reads: set[str], writes: set[str]) -> None:
    found = of(script)
    assert (found.reads, found.writes) == (reads, writes)


@pytest.mark.parametrize(
    "script",
    [
        "./run.sh",
        "make",
        "python3 x.py",
        "eval $x",
        "cat f | sh",
        "rm $x",
        "echo a > $f",
        "sleep 1 &",
        "git checkout b",
    ],
)
def test_what_is_not_known_writes_anything(script: str) -> None:
    assert of(script).writes is None


def test_unparsed_scripts_do_anything() -> None:
    assert of("if then") == UNKNOWN


def test_time_and_chance_are_seen() -> None:
    for script in ("date", "echo $RANDOM", "echo $$", "cat /proc/uptime", "head -c 3 /dev/urandom", "ls; ps", "curl x"):
        assert of(script).volatile, script
    assert not of("ls -l; cat f; sort g").volatile


def test_changes_of_the_shell() -> None:
    for script in ("cd x", "A=1", "export A=1", "set -e", "f() { :; }", ". ./env"):
        assert of(script).changes_shell, script
    for script in ("(cd x; ls)", "A=1 ls", "cat f", "echo $(cd x; pwd)"):
        assert not of(script).changes_shell, script


def test_the_start_is_a_directory_without_a_name() -> None:
    assert of("cat a", START).reads == {"?/a"}
    assert of("cd sub && cat ../a", START).reads == {"?/a"}
    assert of("cat ../a", START).reads is None
    assert of("cat a", None).reads is None


def test_overlap_is_on_the_safe_side() -> None:
    one = frozenset({"/w/d"})
    assert overlap(one, frozenset({"/w/d/x"}))
    assert overlap(one, frozenset({"/w"}))
    assert not overlap(one, frozenset({"/w/dx", "/v"}))
    assert overlap(one, None)
    assert not overlap(frozenset(), None)
    assert overlap(frozenset({"/w/d/x"}), frozenset({"?/x"}))
    assert not overlap(frozenset({"/w/d/y"}), frozenset({"?/x"}))


def test_kinds_of_tools() -> None:
    assert kind_of(ToolCall("execute_bash", {"command": "ls"})) is ToolKind.SHELL
    assert kind_of(ToolCall("python", {"code": "1"})) is ToolKind.PYTHON
    assert kind_of(ToolCall("sql", {"query": "select 1"})) is ToolKind.SQL
    assert kind_of(ToolCall("get_user", {"id": "1"})) is ToolKind.OTHER
    assert kind_of(ToolCall("run_code", {"source": "1"})) is ToolKind.PYTHON


def test_commands_given_word_by_word() -> None:
    assert script_of(ToolCall("shell", {"command": ["bash", "-lc", "ls -l | wc"]})) == "ls -l | wc"
    assert script_of(ToolCall("shell", {"command": ["cat", "a b"]})) == "cat 'a b'"
    assert read(ToolCall("shell", {"command": ["cat", "a"]})).text == "cat a"
    assert kind_of(ToolCall("shell", {"command": 3})) is ToolKind.OTHER


def test_other_tools_by_name_and_statement() -> None:
    assert effects(ToolCall("get_user_details", {"id": "1"})).read_only
    assert effects(ToolCall("searchFlights", {})).read_only
    assert effects(ToolCall("cancel_order", {})).writes is None
    assert effects(ToolCall("think", {"thought": "x"})).reads == frozenset()
    query = {"SELECT 1": True, "show tables": True, "WITH a AS (SELECT 1) SELECT * FROM a": True, "DROP TABLE x": False}
    query |= {"select 'drop' from t": True, "SELECT 1; DELETE FROM t": False, "select 1 into outfile 'x'": False}
    for statement, reads in query.items():
        assert effects(ToolCall("sql", {"query": statement})).read_only is reads, statement


@given(st.text(max_size=60), st.sampled_from(("bash", "sql", "python", "get_x", "")))
@settings(max_examples=100)
def test_nothing_raises(text: str, name: str) -> None:
    for field in ("command", "code", "query"):
        effects(ToolCall(name, {field: text}))
