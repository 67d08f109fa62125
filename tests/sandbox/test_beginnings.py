"""What is told of an observation before its command ends is what it begins with, whatever comes after."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.history import FRESH, advance
from obsspec.sandbox.beginning import Beginning
from obsspec.sandbox.canonical import observe
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import SandboxSpec, TerminalSandbox
from obsspec.values import Exchange, Observation
from tests.sandbox.support import run, shell

PIECES = [
    b"a",
    b"b ",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"\t",
    b"\x1b",
    b"\x1b[",
    b"31m",
    b"\x1b]0;t",
    b"\x07",
    b"\x1bP",
    b"\x1b\\",
    b"\xc2\x9b",
    b"\xc2\x9d",
    b"\xc3",
    b"\xa9",
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xff",
    b"\xe2\x80\xa8",
]
OUTPUT = st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join)


@given(OUTPUT, OUTPUT, OUTPUT, st.integers(1, 12), st.lists(st.integers(0, 40), max_size=3), st.booleans())
def test_b06_whatever_follows_the_text_begins_as_was_told(
    out: bytes, more: bytes, err: bytes, limit: int, cuts: list[int], clipped: bool
) -> None:
    """In whatever portions of whole lines it arrives."""
    beginning, at, told = Beginning(limit), 0, ""
    for cut in [*sorted(cuts), len(out)]:
        end = out.rfind(b"\n", at, cut) + 1
        if end > at:
            beginning.add(out[at:end])
            assert beginning.text.startswith(told), "more is said, and nothing taken back"
            at, told = end, beginning.text
    for lost in (None, 1.0):
        text = observe(out + more, err, exit_code=1, max_characters=limit, clipped=clipped, timed_out_after_s=lost).text
        assert text.startswith(told)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"", ""),
        (b"\n\n", ""),
        (b"a\n", "a\n"),
        (b"a \n", "a"),
        (b"10%\r20%\n", "20%\n"),
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\xff\n", "\ufffd\n"),
    ],
)
def test_of_whole_lines_everything_is_told_but_space_that_may_go(lines: bytes, told: str) -> None:
    beginning = Beginning(1000)
    beginning.add(lines)
    assert beginning.text == told


@asynccontextmanager
async def opened(where: str) -> AsyncGenerator[TerminalSandbox]:
    if where == "local":
        async with LocalSandboxes(timeout_s=5).open(SandboxSpec()) as local:
            yield local
    else:
        async with serve_sandboxes(latency="0.1", timeout_s=5) as sandboxes, sandboxes.open(SandboxSpec()) as remote:
            yield remote


class Heard:
    def __init__(self) -> None:
        self.all: list[tuple[int, str, float]] = []

    def __call__(self, number: int, beginning: str) -> None:
        self.all.append((number, beginning, anyio.current_time()))

    @property
    def said(self) -> list[tuple[int, str]]:
        return [(number, text) for number, text, _ in self.all]


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["local", "remote"])
async def test_lines_are_heard_while_the_command_runs(where: str) -> None:
    async with opened(where) as sandbox:
        heard = Heard()
        sandbox.listen(heard)  # pyright: ignore
        command = "echo one; sleep 0.3; echo two; printf three; sleep 0.3; echo; echo err >&2"
        observation = await run(sandbox, command)
        end_s = anyio.current_time()
        assert observation.text == "one\ntwo\nthree\nerr\n(exit_code=0)"
        assert heard.said[:2] == [(1, "one\n"), (1, "one\ntwo\n")]
        assert heard.all[0][2] < end_s - 0.5
        before = len(heard.all)
        await run(sandbox, "true; sleep 0.05")
        assert len(heard.all) == before, "a command that says nothing is not heard"
        await run(sandbox, "echo x; sleep 0.1")
        assert heard.said[before] == (3, "x\n")


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["local", "remote"])
async def test_calls_that_were_sent_ahead_are_heard_under_their_number(where: str) -> None:
    async with opened(where) as sandbox:
        heard = Heard()
        sandbox.listen(heard)  # pyright: ignore
        first = Exchange((shell("echo 1"),), (Observation("1\n(exit_code=0)"),))
        answers: list[object] = []

        async def ahead(command: str) -> None:
            answers.append(await sandbox.execute_if(shell(command), advance(FRESH, first)))  # pyright: ignore

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ahead, "echo 2; sleep 0.2")
            await anyio.sleep(0.1)
            await run(sandbox, "echo 1")
        assert [answer.text for answer in answers] == ["2\n(exit_code=0)"]  # pyright: ignore
        assert (2, "2\n") in heard.said


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["local", "remote"])
async def test_a_flood_is_told_in_part_and_answered_in_full(where: str) -> None:
    async with opened(where) as sandbox:
        heard = Heard()
        sandbox.listen(heard)  # pyright: ignore
        observation = await run(sandbox, "seq 1 300000")
        assert observation.truncated
        assert all(observation.text.startswith(text) for _, text in heard.said)
        assert len(heard.all) < 200
        assert (await run(sandbox, "echo after")).text == "after\n(exit_code=0)"


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["local", "remote"])
async def test_c01_a_command_that_is_cancelled_while_it_is_heard_leaves_the_sandbox_usable(where: str) -> None:
    async with opened(where) as sandbox:
        heard = Heard()
        sandbox.listen(heard)  # pyright: ignore
        with anyio.move_on_after(0.6) as scope:
            await run(sandbox, "while :; do echo x; sleep 0.02; done")
        assert scope.cancelled_caught
        assert heard.all
        before = len(heard.all)
        assert (await run(sandbox, "echo after; sleep 0.1")).text == "after\n(exit_code=0)"
        assert {number for number, _ in heard.said[before:]} <= {2}
