"""The rules speak only when they know: what they say is what bash says."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.testing.conformance import check_world_model
from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.rules.model import Rules
from tests.world.rules.scripts import scripts


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Session:
    """A rollout that the rules watch. Observations are in our format, or as given."""

    def __init__(self, rules: Rules | None = None, image: str = "image") -> None:
        self.rules = rules or Rules()
        self.image = image
        self.history: tuple[Exchange, ...] = ()

    def context(self, command: str) -> Context:
        call = ToolCall("bash", {"command": command})
        return Context((), (), (call,), self.history, self.image, self.image, len(self.history))

    def ask(self, command: str) -> Prediction | None:
        return self.rules.answer(self.context(command))

    def tell(self, command: str, text: str) -> None:
        context = self.context(command)
        self.rules.learn(context, (Observation(text),))
        self.history += (Exchange(context.calls, (Observation(text),)),)

    def silently(self, *commands: str) -> None:
        for command in commands:
            self.tell(command, "(no output)\n(exit_code=0)")

    def known(self, command: str) -> str | None:
        """The text that is surely shown."""
        found = self.ask(command)
        return found.observations[0].text if found is not None and found.source == "rules/known" else None


@pytest.mark.parametrize(
    "job",
    [
        "{ sleep 1; echo late > f; } >/dev/null 2>&1 &",
        "sleep 1 && echo late > f & true",
        "(echo late > f &)",
        "for i in 1 2; do sh -c 'sleep 1; echo late > f' & done",
        "f() { sleep 1; echo late > f; }; f &",
        "later() { echo late > f & }",
    ],
)
def test_what_a_background_job_may_still_write_is_not_known(job: str) -> None:
    session = Session()
    session.silently("echo old > f", job, "echo new > f")
    assert session.ask("cat f") is None
    session.silently("mkdir -p d && mv f d/g && echo other > f")
    assert session.ask("cat d/g") is None
    assert session.ask("ls") is None


def test_a_background_job_hides_only_what_it_writes_and_waiting_ends_that() -> None:
    session = Session()
    session.silently("{ sleep 1; echo late > f; } >/dev/null 2>&1 &", "echo 1 > g; echo 2 > f")
    assert session.known("cat g") == "1\n(exit_code=0)"
    assert session.ask("wait; cat f") is None  # of a shell that may have gone
    waited = Session()
    waited.silently("echo late > f & wait; echo 1 >> f", "echo 2 > h")
    assert waited.ask("cat f") is None
    assert waited.known("cat h") == "2\n(exit_code=0)"
    waited.silently("echo 3 > f")
    assert waited.known("cat f") == "3\n(exit_code=0)"
    nested = Session()
    nested.silently("(sleep 1 && echo late > f &); wait", "echo 3 > f")
    assert nested.ask("cat f") is None


def test_scripts_get_the_words_that_are_given_to_them() -> None:
    session = Session()
    session.silently("printf '#!/bin/bash\\necho $# $1\\n' > run.sh && chmod +x run.sh")
    assert session.known("bash run.sh a b") == "2 a\n(exit_code=0)"
    assert session.known("./run.sh a b") == "2 a\n(exit_code=0)"
    assert session.known("bash -c 'echo $#'") == "0\n(exit_code=0)"


def test_files_that_the_rollout_wrote_are_known() -> None:
    session = Session()
    session.silently("cat > f <<'EOF'\nb\na\nEOF", "mkdir d && cp f d/g && echo c >> d/g")
    assert session.known("cat f") == "b\na\n(exit_code=0)"
    assert session.known("sort d/g | head -n 2") == "a\nb\n(exit_code=0)"
    digest = hashlib.sha256(b"b\na\n").hexdigest()
    assert session.known("wc -l d/g && sha256sum f | cut -c1-4") == f"3 d/g\n{digest[:4]}\n(exit_code=0)"
    assert session.known("ls d") == "g\n(exit_code=0)"
    session.silently("rm f")
    assert session.known("cat f") == "cat: f: No such file or directory\n(exit_code=1)"


def test_silence_is_said_with_less_confidence() -> None:
    found = Session().ask("mkdir a/b")
    assert found is not None
    assert (found.source, found.observations[0].text) == ("rules/silent", "(no output)\n(exit_code=0)")
    assert 0.5 < found.confidence < 0.99


def test_what_was_read_is_known_until_something_may_have_changed_it() -> None:
    session = Session()
    session.tell("cat f", "x\ny\n(exit_code=0)")
    assert session.known("grep -c x f") == "1\n(exit_code=0)"
    session.tell("ls", "f\n(exit_code=0)")
    assert session.known("cat f") == "x\ny\n(exit_code=0)"
    session.tell("./unknown-program", "done\n(exit_code=0)")
    assert session.ask("cat f") is None


def test_unknown_programs_and_text_are_not_guessed() -> None:
    session = Session()
    for command in (
        "make",
        "cat f",
        "ls",
        "date",
        "python3 x.py",
        "if then",
        "echo $UNSET",
        "cat *.txt",
        "echo $((1+1))",
    ):
        assert session.ask(command) is None, command


def test_a_failed_assumption_is_taken_back() -> None:
    session = Session()
    session.tell("cp a b", "cp: cannot stat 'a': No such file or directory\n(exit_code=1)")
    assert session.known("cp a b") == "cp: cannot stat 'a': No such file or directory\n(exit_code=1)"
    session.tell("cd nowhere", "bash: line 1: cd: nowhere: No such file or directory\n(exit_code=1)")
    session.silently("echo hi > f")
    assert session.known("cat f") == "hi\n(exit_code=0)"
    assert session.known("cd nowhere") == "bash: line 1: cd: nowhere: No such file or directory\n(exit_code=1)"


def test_a_program_whose_silence_is_not_reliable_is_left_to_others() -> None:
    rules = Rules()
    for number in range(12):
        Session(rules, f"image-{number}").tell("chmod 600 f", "chmod: changing permissions: no\n(exit_code=1)")
    assert Session(rules).ask("chmod 600 f") is None
    other = Session(rules)
    other.tell("ls -A", "(no output)\n(exit_code=0)")
    assert other.ask("touch f") is not None


def test_a_shell_for_each_call_forgets_its_directory() -> None:
    session = Session()
    frame = "<returncode>0</returncode>\n<output>\n{}</output>"
    session.tell("pwd", frame.format("/app\n"))
    session.tell("cd /tmp && X=1 && echo a > f", frame.format(""))
    assert session.known("pwd") == frame.format("/app\n")
    assert session.known("cat /tmp/f") == frame.format("a\n")
    assert session.ask("echo $X") is None


def test_the_same_history_is_worked_out_once() -> None:
    rules = Rules()
    for _ in range(3):
        session = Session(rules)
        session.silently(*(f"echo {number} > f{number}" for number in range(5)))
        assert session.known("cat f3") == "3\n(exit_code=0)"
    assert rules.states <= 6


@pytest.mark.anyio
async def test_predict_emits_at_most_one_candidate() -> None:
    emitted: list[Prediction] = []
    await Rules().predict(Session().context("echo hi"), 4, emitted.append)
    assert [(p.source, p.observations[0].text) for p in emitted] == [("rules/known", "hi\n(exit_code=0)")]


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), max_size=4), st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_nothing_raises(history: list[tuple[str, str]], command: str) -> None:
    session = Session()
    for before, text in history:
        session.tell(before, text)
    session.ask(command)
    session.tell(command, "x")


_PREAMBLE = ("ls -A", "pwd", "cd nope", "mkdir /tmp", "mkdir d; printf 'b,1\\na,2\\n' > a.txt")


@pytest.mark.sandbox
@pytest.mark.anyio
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(scripts, min_size=25, max_size=40))
async def test_what_is_known_is_what_bash_says(commands: list[str]) -> None:
    session = Session()
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        for command in (*_PREAMBLE, *commands):
            expected = session.known(command)
            observation = await sandbox.execute(ToolCall("bash", {"command": command}))
            assert expected in (None, observation.text), (command, [e.calls[0].command for e in session.history])
            session.tell(command, observation.text)


@pytest.mark.anyio
async def test_the_rules_keep_the_promises_of_world_models() -> None:
    session = Session()
    contexts = [session.context("echo hi"), session.context("mkdir d"), session.context("make")]
    two = (ToolCall("bash", {"command": "echo a > f"}), ToolCall("bash", {"command": "cat f"}))
    contexts.append(Context((), (), two, (), "image", "image"))

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Rules]:
        yield Rules()

    await check_world_model(fresh, contexts=contexts)
