"""The order of commands at a provider: that of our own sandboxes, and each runs once however often it is asked for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.history import FRESH, LOST, START, guard_after
from obsspec.sandbox.commands import Commands, Performed
from obsspec.sandbox.inside.ledger import KEPT, Ledger, Request
from obsspec.testing import run_virtual
from obsspec.testing.virtual_clock import Backend
from obsspec.values import Exchange, Guard, Observation, Refusal, Refused, SandboxError, ToolCall


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


def step(command: str, text: str) -> Exchange:
    return Exchange((bash(command),), (Observation(text),))


def plain(id: int, command: str, number: int) -> Request:
    return Request(id, command, number, None)


def ahead(id: int, command: str, *steps: tuple[str, str]) -> Request:
    guard = guard_after([step(*one) for one in steps])
    return Request(id, command, guard.after + 1, (guard.after, guard.digest))


def said(text: str) -> dict[str, Any]:
    return {"text": text}


def finish(ledger: Ledger, text: str, *, settled: bool = True) -> None:
    ledger.end(said(text), text=text, settled=settled)


def ask(ledger: Ledger, *requests: Request) -> Request | None:
    for request in requests:
        ledger.ask(request)
    return ledger.start()


# Equal to `sandbox.commands` -----------------------------------------------------------------------------------------

COMMANDS, TEXTS = ("a", "b"), ("", "x")
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["plain", "ahead", "again"]),
        st.sampled_from(COMMANDS),
        st.sampled_from(TEXTS),
        st.booleans(),  # nothing is left open by it
        st.integers(-1, 2),  # how far the number is off, mostly not
        st.sampled_from(["right", "right", "right", "wrong"]),
    ),
    max_size=12,
)


@given(MOVES)
def test_the_answers_are_those_of_commands(moves: list[tuple[str, str, str, bool, int, str]]) -> None:
    """Whatever is asked, one after the other, with guards that hold and guards that do not, and asked again."""
    ledger = Ledger()
    answer = Performed(Observation(""))

    async def perform(call: ToolCall, *_: object) -> Performed:
        return answer

    async def play() -> None:
        nonlocal answer
        commands = Commands(perform)
        history: list[Exchange] = []
        last: tuple[str, Guard | None, int] | None = None
        for id, (kind, command, text, settled, off, right) in enumerate(moves, 1):
            answer = Performed(Observation(text), jobs=not settled)
            guard: Guard | None = None
            number = commands.history.number + 1
            if kind == "plain":
                number += min(off, 0)
            elif kind == "ahead":
                guard = guard_after(history)
                guard = guard if right == "right" else Guard(max(0, guard.after - max(off, 0)), LOST if off else START)
                number = guard.after + 1
            elif last is not None:
                command, guard, number = last
            last = command, guard, number
            request = Request(id, command, number, (guard.after, guard.digest) if guard else None)
            if guard is not None and guard.after > commands.history.number:
                continue
            expected: object
            try:
                ran = commands.history.number
                seen = await (
                    commands.execute_if(bash(command), guard) if guard else commands.execute(bash(command), number)
                )
                expected = {"refused": str(seen.why)} if isinstance(seen, Refused) else said(seen.text)
                if commands.history.number > ran:
                    history.append(step(command, text))
            except SandboxError as error:
                expected = {"error": str(error)}
            if ask(ledger, request) is not None:
                finish(ledger, text, settled=settled)
            ledger.start()
            assert ledger.answer(id) == expected

    run_virtual(play, backend=Backend.ASYNCIO)


# Waiting -------------------------------------------------------------------------------------------------------------


def test_c15_guarded_commands_wait_for_their_turn_whatever_order_they_come_in() -> None:
    ledger = Ledger()
    steps = [("a", "1"), ("b", "2"), ("c", "3")]
    requests = [ahead(10 + n, steps[n][0], *steps[:n]) for n in (2, 1)]
    assert ask(ledger, *requests) is None
    assert [ledger.answer(request.id) for request in requests] == [None, None]
    order: list[str] = []
    running = ask(ledger, plain(1, "a", 1))
    while running is not None:
        order.append(running.command)
        finish(ledger, dict(steps)[running.command])
        running = ledger.start()
    assert order == ["a", "b", "c"]
    assert [ledger.answer(id) for id in (1, 11, 12)] == [said("1"), said("2"), said("3")]


def test_c21_what_can_not_run_any_more_is_refused_while_a_command_runs() -> None:
    ledger = Ledger()
    assert ask(ledger, ahead(2, "x", ("a", "1")), plain(1, "a", 1)) is not None
    ledger.ask(ahead(3, "y"))
    assert ledger.answer(3) == {"refused": "history"}
    assert ledger.answer(2) is None
    finish(ledger, "1", settled=False)
    assert ledger.start() is None
    assert ledger.answer(2) == {"refused": "state"}


def test_a_plain_command_goes_before_guarded_ones_that_could_run() -> None:
    ledger = Ledger()
    ask(ledger, ahead(1, "a"), ahead(2, "b", ("a", "1")))
    ledger.ask(plain(3, "other", 2))
    finish(ledger, "1")
    running = ledger.start()
    assert running is not None
    assert running.command == "other"
    assert ledger.answer(2) == {"refused": "history"}


# Asked again ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [plain(1, "a", 1), ahead(1, "a")], ids=["plain", "guarded"])
def test_a_request_that_comes_again_runs_once(request_: Request) -> None:
    """Before it has answered, after it, and after much else."""
    ledger = Ledger()
    assert ask(ledger, request_, request_) is request_
    assert ask(ledger, request_) is None
    finish(ledger, "1")
    assert ask(ledger, request_) is None
    assert ledger.answer(1) == said("1")
    for number in range(2, 2 * KEPT):
        assert ask(ledger, plain(number, "b", number)) is not None
        finish(ledger, "2")
    assert ask(ledger, request_) is None
    assert ledger.answer(1) == {"error": "the answer to request 1 is not kept any more"}


def test_a_guarded_command_under_another_id_has_the_answer_of_the_one_run() -> None:
    ledger = Ledger()
    assert ask(ledger, ahead(1, "a"), ahead(2, "a")) is not None
    finish(ledger, "1")
    assert ask(ledger, ahead(3, "a")) is None
    assert ledger.answer(1) == ledger.answer(2) == ledger.answer(3) == said("1")


@pytest.mark.parametrize("runs", [False, True], ids=["it ran", "it runs"])
def test_c20_another_command_under_a_guard_that_was_used_is_refused(runs: bool) -> None:
    ledger = Ledger()
    assert ask(ledger, ahead(1, "a")) is not None
    if not runs:
        finish(ledger, "1")
    assert ask(ledger, ahead(2, "b")) is None
    assert ledger.answer(2) == {"refused": "history"}

    async def play() -> None:
        ran: list[str] = []

        async def perform(call: ToolCall, *_: object) -> Performed:
            ran.append(call.command)
            await anyio.sleep(1.0)
            return Performed(Observation("1"))

        commands = Commands(perform)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commands.execute_if, bash("a"), FRESH)
            await anyio.sleep(0.5 if runs else 2.0)
            assert await commands.execute_if(bash("b"), FRESH) == Refused(Refusal.HISTORY)
            assert ran == ["a"]

    run_virtual(play, backend=Backend.ASYNCIO)


def test_after_a_guarded_call_that_was_cut_off_commands_run_nothing_more() -> None:
    """Here a sandbox of ours differs: whoever gives a guarded call up there may kill it, and then nobody knows."""

    async def play() -> None:
        ran: list[str] = []

        async def perform(call: ToolCall, *_: object) -> Performed:
            ran.append(call.command)
            await anyio.sleep(1.0)
            return Performed(Observation("1"))

        commands = Commands(perform)
        with anyio.move_on_after(0.5):
            await commands.execute_if(bash("a"), FRESH)
        for again in (lambda: commands.execute(bash("b")), lambda: commands.execute_if(bash("a"), FRESH)):
            with pytest.raises(SandboxError, match="cancelled while it ran"):
                await again()
        assert await commands.execute_if(bash("b"), guard_after([step("a", "1")])) == Refused(Refusal.HISTORY)
        assert ran == ["a"]

    run_virtual(play, backend=Backend.ASYNCIO)


# Withdrawn -----------------------------------------------------------------------------------------------------------


def test_d11_what_was_withdrawn_never_runs_not_even_if_it_comes_later() -> None:
    ledger = Ledger()
    ask(ledger, ahead(1, "x", ("a", "1")))
    ledger.withdraw([1, 2, 3])
    assert ask(ledger, plain(2, "late", 1), ahead(3, "late")) is None
    assert [ledger.answer(id) for id in (1, 2, 3)] == [
        {"refused": "withdrawn"},
        {"error": "cancelled"},
        {"refused": "withdrawn"},
    ]
    assert ask(ledger, ahead(4, "late")) is not None, "unless it is asked again"


def test_d05_withdrawing_what_has_ended_changes_nothing() -> None:
    ledger = Ledger()
    ask(ledger, plain(1, "a", 1))
    finish(ledger, "1")
    ledger.withdraw([1])
    assert ledger.answer(1) == said("1")
    assert not ledger.interrupted
    assert ask(ledger, ahead(2, "b", ("a", "1"))) is not None


def test_after_a_plain_command_that_was_withdrawn_while_it_ran_no_guard_holds() -> None:
    ledger = Ledger()
    ask(ledger, plain(1, "a", 1))
    ledger.withdraw([1])
    assert ledger.interrupted
    finish(ledger, "1")
    assert ledger.answer(1) == {"error": "cancelled"}
    for guarded in (ahead(2, "b", ("a", "1")), ahead(3, "b", ("a", "cancelled"))):
        assert ask(ledger, guarded) is None
        assert ledger.answer(guarded.id) == {"refused": "history"}
    assert ask(ledger, plain(4, "c", 2)) is not None


def test_a_guarded_command_that_runs_goes_on_when_it_is_withdrawn() -> None:
    ledger = Ledger()
    ask(ledger, ahead(1, "a"))
    ledger.withdraw([1])
    assert not ledger.interrupted
    finish(ledger, "1")
    assert ask(ledger, plain(2, "other", 1)) is None
    assert ledger.answer(2) == {"error": "command 1 is not this one: another was sent ahead and ran"}
    assert ask(ledger, ahead(3, "a")) is None
    assert ledger.answer(3) == said("1")


# Broken --------------------------------------------------------------------------------------------------------------


def test_what_runs_waits_or_comes_later_fails_when_the_sandbox_does() -> None:
    ledger = Ledger()
    ask(ledger, plain(1, "a", 1), ahead(2, "b", ("a", "1")))
    ledger.fail("it broke")
    assert ask(ledger, plain(3, "c", 2), ahead(4, "d")) is None
    assert {id: ledger.answer(id) for id in range(1, 5)} == {id: {"error": "it broke"} for id in range(1, 5)}
