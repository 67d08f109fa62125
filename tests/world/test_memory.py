"""The memory as a world model: it says what was seen, where it holds, and keeps quiet where it does not."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from obsspec.testing.conformance import check_world_model
from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.memory import Memory, Mode, Store


class Rollout:
    """Plays one rollout against a memory: what it predicts for each call, then what really comes."""

    def __init__(self, memory: Memory, task: str, image: str = "") -> None:
        self.memory = memory
        self.task = task
        self.image = image
        self.history: tuple[Exchange, ...] = ()

    def context(self, *calls: ToolCall) -> Context:
        return Context((), (), calls, self.history, self.task, self.image, len(self.history))

    def predict(self, call: ToolCall | str, breadth: int = 1) -> list[Prediction]:
        return self.memory.candidates(self.context(as_call(call)), breadth)

    def play(self, call: ToolCall | str, text: str) -> Prediction | None:
        found = self.predict(call)
        context = self.context(as_call(call))
        observations = (Observation(text),)
        self.memory.learn(context, observations)
        self.history = (*self.history, Exchange(context.calls, observations))
        return found[0] if found else None


def as_call(call: ToolCall | str) -> ToolCall:
    return ToolCall("bash", {"command": call}) if isinstance(call, str) else call


def sql(query: str) -> ToolCall:
    return ToolCall("sql", {"query": query})


def said(found: list[Prediction] | Prediction | None) -> str | None:
    if isinstance(found, list):
        found = found[0] if found else None
    return found.observations[0].text if found else None


@pytest.mark.anyio
async def test_it_keeps_the_promises_of_a_world_model() -> None:
    @asynccontextmanager
    async def factory() -> AsyncGenerator[Memory, None]:
        memory = Memory(Store(), floor=0.0)
        rollout = Rollout(memory, "t-0")
        for text in ("one", "two", "one"):
            rollout.play("cat /a", text)
        rollout.play("cat /b", "b")
        yield memory

    one = Context((), (), (as_call("cat /a"),), task_id="t-0")
    two = Context((), (), (as_call("cat /a"), as_call("cat /b")), task_id="t-0")
    await check_world_model(factory, contexts=[one, two])


def test_the_same_call_in_the_same_state_is_remembered() -> None:
    memory = Memory(Store())
    Rollout(memory, "t-0").play("cat /a", "content\n")
    found = Rollout(memory, "t-0").predict("cat /a")
    assert said(found) == "content\n"
    assert found[0].source == "memory/exact"


def test_a_repeated_read_within_a_rollout_is_remembered_until_something_relevant_changes() -> None:
    rollout = Rollout(Memory(Store(), floor=0.7), "t-0")
    rollout.play("cat /a", "old\n")
    rollout.play("echo x > /b", "")
    found = rollout.predict("cat /a")
    assert (said(found), found[0].source) == ("old\n", "memory/rollout")
    rollout.play("echo new > /a", "")
    assert rollout.predict("cat /a") == []


def test_another_state_of_what_is_read_is_another_question() -> None:
    memory = Memory(Store(), floor=0.7)
    rollout = Rollout(memory, "t-0")
    rollout.play("echo 1 > /a", "")
    rollout.play("cat /a", "1\n")
    other = Rollout(memory, "t-0")
    other.play("echo 2 > /a", "")
    assert other.predict("cat /a") == []
    other.play("cat /a", "2\n")
    third = Rollout(memory, "t-0")
    third.play("ls /tmp", "")
    third.play("echo 1 > /a", "")
    assert said(third.predict("cat /a")) == "1\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (as_call("cat  /a"), as_call("cat /a ;")),
        (as_call("execute[cat /a]"), as_call("cat /a")),
        (sql("SELECT name FROM t;"), sql("select  name\nFROM t")),
        (sql("execute[DESC t]"), sql("desc t")),
    ],
)
def test_spellings_that_do_not_matter_do_not_matter(first: ToolCall, second: ToolCall) -> None:
    memory = Memory(Store())
    Rollout(memory, "t-0").play(first, "an answer of some length")
    found = Rollout(memory, "t-0").predict(second)
    assert said(found) == "an answer of some length"
    assert found[0].source == "memory/normal"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (as_call("echo 'a  b'"), as_call("echo 'a b'")),
        (sql("SELECT 'A'"), sql("SELECT 'a'")),
        (sql("SELECT Name FROM t"), sql("SELECT name FROM t")),
        (as_call("find . -exec ls {} \\;"), as_call("find . -exec ls {} \\")),
    ],
)
def test_spellings_that_matter_are_told_apart(first: ToolCall, second: ToolCall) -> None:
    memory = Memory(Store(), floor=0.7)
    Rollout(memory, "t-0").play(first, "an answer of some length")
    assert Rollout(memory, "t-0").predict(second) == []


def test_b10_volatile_output_is_not_guessed() -> None:
    memory = Memory(Store())
    clock = iter(range(1_000))
    for _ in range(20):
        rollout = Rollout(memory, "t-0")
        for command in ("date", "date +%N", "echo $RANDOM", "echo $$"):
            assert rollout.play(command, f"{next(clock)}\n") is None


def test_chance_in_python_is_not_guessed() -> None:
    memory = Memory(Store())
    codes = ("import random\nprint(random.randint(1, 9))", "import time\nprint(time.time())")
    for code in codes:
        call = ToolCall("python", {"code": code})
        Rollout(memory, "t").play(call, "5")
        assert Rollout(memory, "t").predict(call) == []
    seeded = ToolCall("python", {"code": "import random\nrandom.seed(1)\nprint(random.randint(1, 9))"})
    Rollout(memory, "t").play(seeded, "3")
    assert said(Rollout(memory, "t").predict(seeded)) == "3"


def test_what_keeps_failing_is_no_longer_guessed() -> None:
    memory = Memory(Store())
    numbers = random.Random(0)
    guesses = [Rollout(memory, "t-0").play("./roll-a-die", str(numbers.random())) for _ in range(30)]
    assert any(guesses[:5])  # nobody can know at first
    assert not any(guesses[10:])


def test_confidence_is_learnt_from_outcomes() -> None:
    memory = Memory(Store())
    for number in range(40):
        Rollout(memory, f"t-{number}").play("cat /motd", "welcome to this machine\n")
    found = Rollout(memory, "u-0").predict("cat /motd")
    assert said(found) == "welcome to this machine\n"
    assert found[0].confidence > 0.9


def test_several_answers_are_candidates_of_their_own() -> None:
    memory = Memory(Store(), floor=0.0)
    for text in ("heads", "tails", "heads", "tails", "tails"):
        Rollout(memory, "t-0").play("./flip", text)
    found = Rollout(memory, "t-0").predict("./flip", breadth=3)
    texts = [prediction.observations[0].text for prediction in found]
    assert len(texts) == len(set(texts))
    assert sum(prediction.confidence for prediction in found) <= 1.0
    assert [each.confidence for each in found] == sorted((each.confidence for each in found), reverse=True)


def test_all_calls_of_a_turn_are_predicted_in_order() -> None:
    memory = Memory(Store())
    first = Rollout(memory, "t-0")
    first.play("echo 1 > /a", "")
    first.play("cat /a", "1\n")
    both = Rollout(memory, "t-0").context(as_call("echo 1 > /a"), as_call("cat /a"))
    found = memory.candidates(both, 1)
    assert [observation.text for observation in found[0].observations] == ["", "1\n"]


def databases(memory: Memory, tasks: int) -> list[tuple[str | None, str]]:
    """Tasks on two databases that answer the same questions differently; pairs of what was said and what was right."""
    outcomes: list[tuple[str | None, str]] = []
    for number in range(tasks):
        which = "first" if number % 2 else "second"
        rollout = Rollout(memory, f"db-{number}")
        rollout.play(sql("SHOW TABLES"), f"[('{which}_customers',), ('{which}_orders',)]")
        for query in ("DESC people", "SELECT name FROM people", f"SELECT {number // 4} + id FROM people"):
            right = f"[('{which}', '{query}', 'and more of it')]"
            outcomes.append((said(rollout.play(sql(query), right)), right))
    return outcomes


def test_tasks_of_one_environment_are_found_by_what_they_answer() -> None:
    outcomes = databases(Memory(Store()), 40)[60:]
    spoken = [(guess, right) for guess, right in outcomes if guess is not None]
    assert len(spoken) > 0.75 * len(outcomes)
    assert all(guess == right for guess, right in spoken)


def test_a_task_that_contradicts_its_environment_leaves_it() -> None:
    memory = Memory(Store(), floor=0.7)
    for number in range(10):
        rollout = Rollout(memory, f"db-{number}")
        for query in ("SHOW TABLES", "DESC people", "SELECT 1 FROM people", "SELECT 2 FROM people"):
            rollout.play(sql(query), f"the answer of most to {query}")
    stranger = Rollout(memory, "db-99")
    stranger.play(sql("SHOW TABLES"), "the answer of most to SHOW TABLES")
    stranger.play(sql("DESC people"), "something else entirely, a")
    stranger.play(sql("SELECT 1 FROM people"), "something else entirely, b")
    found = stranger.predict(sql("SELECT 2 FROM people"))
    assert not found or found[0].source != "memory/linked"
    assert (
        said(Rollout(memory, "db-3").predict(sql("SELECT 2 FROM people")))
        == "the answer of most to SELECT 2 FROM people"
    )


def test_what_changed_for_others_of_the_environment_is_noticed() -> None:
    memory = Memory(Store())
    for period in range(12):  # something appears or goes for all of them, and each task comes back to see it
        for number in range(3):
            rollout = Rollout(memory, f"db-{number}")
            rollout.play(sql("DESC people"), "[('id', 'int'), ('name', 'text')]")
            rollout.play(sql("SELECT 1 FROM people"), "[('anna',), ('bert',), ('carl',)]")
            guess = said(rollout.play(sql("SHOW TABLES"), f"[('people',), ('table_{period}',)]"))
            if period == 11 and number > 0:
                assert guess == "[('people',), ('table_11',)]"


def test_an_answer_is_adapted_to_other_arguments() -> None:
    memory = Memory(Store())
    for number in range(30):
        rollout = Rollout(memory, f"t-{number}")
        rollout.play(f"ls /data/part{number}", f"ls: cannot access '/data/part{number}': No such file or directory\n")
    found = Rollout(memory, "t-99").predict("ls /data/else")
    assert said(found) == "ls: cannot access '/data/else': No such file or directory\n"
    assert found[0].source in ("memory/template", "memory/transition", "memory/episode")


def test_what_follows_a_kind_of_observation_is_learnt() -> None:
    memory = Memory(Store())
    for number in range(40):
        rollout = Rollout(memory, f"t-{number}")
        locked = number % 2 == 0
        rollout.play("./status", "locked" if locked else "open for business")
        rollout.play(f"./enter {number}", "access denied" if locked else "you are welcome here")
    rollout = Rollout(memory, "t-99")
    rollout.play("./status", "locked")
    assert said(rollout.predict("./enter 99")) == "access denied"


def test_the_number_of_an_input_is_not_part_of_what_is_remembered() -> None:
    memory = Memory(Store())
    code = ToolCall("python", {"code": "1 + 1"})
    Rollout(memory, "t-0").play(code, "Out[1]: 2")
    rollout = Rollout(memory, "t-0")
    rollout.play(ToolCall("python", {"code": "x = 5"}), "")
    assert said(rollout.predict(code)) == "Out[2]: 2"


def test_rollouts_of_one_image_share_whatever_their_tasks_are_called() -> None:
    memory = Memory(Store())
    Rollout(memory, "one", image="debian").play("cat /etc/issue", "Debian GNU/Linux 12\n")
    assert Rollout(memory, "two", image="debian").predict("cat /etc/issue")[0].source == "memory/exact"


def test_what_was_learnt_survives_in_the_file_and_reaches_other_processes(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        databases(Memory(store), 20)
    with Store(tmp_path / "m.db") as store:
        memory = Memory(store)
        rollout = Rollout(memory, "db-new")
        rollout.play(sql("SHOW TABLES"), "[('first_customers',), ('first_orders',)]")
        found = rollout.predict(sql("SELECT name FROM people"))
        assert said(found) == "[('first', 'SELECT name FROM people', 'and more of it')]"
        assert found[0].source == "memory/linked"


def test_read_only_changes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        Rollout(Memory(store), "t-0").play("cat /a", "a\n")
    before = content(tmp_path / "m.db")
    with Store(tmp_path / "m.db") as store:
        memory = Memory(store, mode=Mode.READ_ONLY)
        rollout = Rollout(memory, "t-0")
        assert said(rollout.play("cat /a", "a\n")) == "a\n"
        rollout.play("cat /b", "b\n")
        assert said(rollout.predict("cat /b")) == "b\n"  # of this rollout's own past
        assert Rollout(memory, "t-0").predict("cat /b") == []
    assert content(tmp_path / "m.db") == before


def test_isolated_knows_and_tells_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        Rollout(Memory(store), "t-0").play("cat /a", "a\n")
        store.flush()
        before = content(tmp_path / "m.db")
        isolated = Memory(store, mode=Mode.ISOLATED)
        rollout = Rollout(isolated, "t-0")
        assert rollout.play("cat /a", "other\n") is None
        assert said(Rollout(isolated, "t-0").predict("cat /a")) == "other\n"
        store.flush()
        assert content(tmp_path / "m.db") == before


def test_what_was_learnt_from_test_tasks_is_never_seen_by_training(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        training, testing = Memory(store, split="train", floor=0.0), Memory(store, split="test", floor=0.0)
        for number in range(20):
            rollout = Rollout(testing, f"test-{number}")
            rollout.play(f"cat /a{number}", "the secret answer of the test")
            rollout.play("cat /same", "the secret answer of the test")
        for task in ("train-0", "test-0", "test-99"):
            for call in ("cat /a0", "cat /same", "cat /a99"):
                assert Rollout(training, task).predict(call, breadth=5) == []
        assert said(Rollout(testing, "test-0").predict("cat /same")) == "the secret answer of the test"


def test_a_task_that_was_tested_on_is_not_learnt_in_training(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        training, testing = Memory(store, split="train"), Memory(store, split="test")
        Rollout(testing, "t-0").play("cat /a", "a\n")
        store.flush()
        before = content(tmp_path / "m.db")
        Rollout(training, "t-0").play("cat /a", "a\n")
        store.flush()
        assert content(tmp_path / "m.db") == before
        assert training.refused > 0


def test_evaluating_reads_what_training_learnt_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        training = Memory(store)
        Rollout(training, "train-0").play("cat /a", "a\n")
        store.flush()
        before = content(tmp_path / "m.db")
        evaluated = training.forked()
        assert said(Rollout(evaluated, "train-0").predict("cat /a")) == "a\n"
        for _ in range(2):
            Rollout(evaluated, "test-0").play("cat /t", "secret\n")
        assert said(Rollout(evaluated, "test-0").predict("cat /t")) == "secret\n"
        store.flush()
        assert content(tmp_path / "m.db") == before
        assert Rollout(training, "test-0").predict("cat /t") == []


def test_a_cleared_memory_is_cold_and_the_old_one_is_not() -> None:
    memory = Memory(Store())
    Rollout(memory, "t-0").play("cat /a", "a\n")
    cleared = memory.cleared()
    assert Rollout(cleared, "t-0").predict("cat /a") == []
    Rollout(cleared, "t-0").play("cat /a", "b\n")
    assert said(Rollout(memory, "t-0").predict("cat /a")) == "a\n"


def content(path: Path) -> list[tuple[object, ...]]:
    """All that a store's file says."""
    link = sqlite3.connect(path)
    try:
        cells = link.execute("SELECT key, field, count FROM cells ORDER BY 1, 2").fetchall()
        return cells + link.execute("SELECT digest, body FROM texts ORDER BY 1").fetchall()
    finally:
        link.close()


def test_answers_from_before_a_change_of_what_is_read_are_trusted_less() -> None:
    memory = Memory(Store())
    for i in range(8):
        before = Rollout(memory, f"t{i}")
        before.play("python3 main.py", "1\n")
        before.play("cat main.py", f"print({i})\n")
        before.play("python3 other.py", "2\n")
        before.play("cat main.py", f"print({i})\n")
        before.play("sed -i s/print/echo/ main.py", "")
        before.play("cat main.py", f"echo({i})\n")
    now = Rollout(memory, "t0")
    now.play("python3 new.py", "3\n")
    assert said(now.predict("cat main.py")) == "print(0)\n"
    now.play("cat main.py", "print(0)\n")
    now.play("sed -i s/print/echo/ main.py", "")
    assert said(now.predict("cat main.py")) == "echo(0)\n"
