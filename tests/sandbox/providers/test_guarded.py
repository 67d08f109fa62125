"""Calls sent ahead through a provider's exec, over a wire that delays, loses, cuts and repeats: both arms are equal."""

from __future__ import annotations

import anyio
import pytest

from obsspec.history import guard_after
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.providers import call as call_module
from obsspec.sandbox.providers.machine import RunnerSettings
from obsspec.sandbox.spec import SandboxSpec
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.speculation.trace import SpeculationReport
from obsspec.testing import Move, ScriptedPolicy, ScriptedWorldModel, always, recite, toy_renderer
from obsspec.testing.delays import constant
from obsspec.values import Context, Exchange, Guard, Observation, Refusal, Refused, SandboxError, StopReason
from tests.sandbox.providers.box import boxes
from tests.sandbox.providers.machines import BoxSandboxes, Mishap, Wire
from tests.sandbox.support import eventually, host_processes, output, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
SILENT = "(no output)\n(exit_code=0)"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks again at once, and often enough for any luck."""
    monkeypatch.setattr(call_module, "PAUSE_S", 0.01)
    monkeypatch.setattr(call_module, "ATTEMPTS", 30)
    monkeypatch.setattr(call_module, "WAIT_S", 0.5)


def guard(*steps: tuple[str, str]) -> Guard:
    return guard_after([Exchange((shell(command),), (Observation(text),)) for command, text in steps])


# Both arms -----------------------------------------------------------------------------------------------------------

COMMANDS = (
    "echo one >> f",
    "cat f",
    "cd /tmp; x=1",
    "cat missing",
    "echo $x >> ~/f; cat ~/f",
    "sleep 9",
    "echo two >> ~/f",
    "cat ~/f",
)
SAID = (
    "(no output)",
    "one",
    "(no output)",
    "cat: missing: No such file or directory",
    "one\n1",
    "(no output)\n(timed out after 1 s)\n(shell state changes lost)",
    "(no output)",
    "one\n1\ntwo",
)
CODES = (0, 0, 0, 1, 0, 124, 0, 0)
WRONG = 3  # this one is guessed wrong


def guess(context: Context) -> tuple[Observation, ...]:
    number = len(context.history)
    text = "?" if number == WRONG else f"{SAID[number]}\n(exit_code={CODES[number]})"
    return (Observation(text),)


async def play(guarded: bool, wire: Wire, *script: str) -> tuple[Trajectory, list[str], SpeculationReport | None]:
    renderer = toy_renderer()
    rules = RolloutRules(renderer, Limits(20, 200, 4000), "seed")
    policy = ScriptedPolicy(recite(*map(renderer.call, script), renderer.answer("ok")), first_s=constant(0.05))
    sandboxes = BoxSandboxes(RunnerSettings(1.0), wire)
    async with sandboxes.open(SandboxSpec()) as sandbox:
        wire.troubled = True
        if not guarded:
            return await run_loop("go", rules, policy, sandbox), sandbox.log, None
        model = ScriptedWorldModel(guess, always(Move.RIGHT))
        async with open_session(policy, model, rules, settings=SpeculationSettings(depth=4, guarded=True)) as session:
            trajectory = await run_loop("go", rules, session.policy, session.sandbox(sandbox))
            if not trajectory.stop.is_error:
                session.check_committed()
        return trajectory, sandbox.log, session.report


ALL = tuple(Mishap)


@pytest.mark.parametrize(
    ("mishaps", "seed"),
    [((), 0), (ALL, 2), (ALL, 3)],
    ids=["no mishap", "any mishap", "again"],
)
async def test_both_arms_are_equal_and_the_sandbox_has_the_committed_commands_once_in_order(
    mishaps: tuple[Mishap, ...], seed: int
) -> None:
    """What ran is seen in a file that commands append to, and not only in the log."""
    results: list[Trajectory] = []
    for guarded in (False, True):
        wire = Wire(seed, slowest_s=0.1, mishaps=mishaps)
        trajectory, log, report = await play(guarded, wire, *COMMANDS)
        results.append(trajectory)
        assert log == list(COMMANDS)
        assert bool(wire.seen) == bool(mishaps)
        if report is not None:
            assert report.guarded_ran >= 3
            assert report.guarded_refused > 0
    a, b = results
    assert [turn.observations for turn in a.turns] == [turn.observations for turn in b.turns]
    assert [turn.observations[0].text for turn in a.turns if turn.observations] == [
        f"{text}\n(exit_code={code})" for text, code in zip(SAID, CODES, strict=True)
    ]
    assert (a.ids, a.logprobs, a.stop, a.answer) == (b.ids, b.logprobs, b.stop, b.answer)
    assert await eventually(lambda: boxes() == 0)


@pytest.mark.parametrize("victim", ["start", "init"], ids=["daemon", "init"])
async def test_both_arms_end_the_same_when_a_command_kills_the_runner(victim: str) -> None:
    script = ("echo one >> f", "cat f", f"echo x >> f; pkill -9 -f 'obsspec-runner.pyz {victim}'; sleep 0.3", "cat f")
    results = [await play(guarded, Wire(slowest_s=0.1), *script) for guarded in (False, True)]
    (a, log_a, _), (b, log_b, report) = results
    assert a.stop is b.stop is StopReason.SANDBOX_ERROR
    assert [turn.observations for turn in a.turns] == [turn.observations for turn in b.turns]
    assert log_a[:2] == log_b[:2] == list(script[:2])
    assert report is not None
    assert report.guarded_ran >= 1


# One by one ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_sent_ahead_in_any_order_over_a_bad_wire_runs_once_in_order(seed: int) -> None:
    commands = [f"echo {number} >> f" for number in range(8)]
    wire = Wire(seed, slowest_s=0.2, mishaps=ALL, share=0.5)
    async with BoxSandboxes(wire=wire).open(SandboxSpec()) as sandbox:
        wire.troubled = True
        async with anyio.create_task_group() as tasks:
            for number in reversed(range(8)):
                condition = guard(*((command, SILENT) for command in commands[:number]))
                tasks.start_soon(sandbox.execute_if, shell(commands[number]), condition)
                other = guard(*[("echo other", "")] * (number + 1))
                tasks.start_soon(sandbox.execute_if, shell("echo never >> f"), other)
        wire.troubled = False
        assert sandbox.log == commands
        assert await output(sandbox, "tr -d '\\n' < f") == "01234567"


@pytest.mark.parametrize("mishap", [Mishap.ANSWER_LOST, Mishap.LATE, Mishap.TIMEOUT, Mishap.TWICE])
async def test_a_plain_command_over_a_bad_wire_runs_once(mishap: Mishap) -> None:
    wire = Wire(mishaps=(mishap,), share=0.6)
    async with BoxSandboxes(wire=wire).open(SandboxSpec()) as sandbox:
        wire.troubled = True
        for number in range(4):
            await output(sandbox, f"sleep 0.2; echo {number} >> f")
        wire.troubled = False
        await anyio.sleep(0.6)  # late ones come now
        assert await output(sandbox, "tr -d '\\n' < f") == "0123"


async def test_a_wire_that_is_down_is_an_error_and_what_was_sent_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command may arrive after we have given up: it does not run then."""
    monkeypatch.setattr(call_module, "ATTEMPTS", 2)
    wire = Wire(mishaps=(Mishap.LATE,), share=1.0)
    async with BoxSandboxes(wire=wire).open(SandboxSpec()) as sandbox:
        wire.troubled = True
        with pytest.raises(SandboxError, match="no answer from the sandbox: planned: late"):
            await sandbox.execute(shell("echo x > f"))
        wire.troubled = False
        assert await output(sandbox, "ls") == "(no output)"
        await anyio.sleep(1)
        assert await output(sandbox, "ls") == "(no output)"


async def test_d11_a_cancelled_command_is_killed_and_a_cancelled_call_withdrawn_at_once() -> None:
    """Without another request that would say so."""
    sandboxes = BoxSandboxes()
    async with sandboxes.open(SandboxSpec()) as sandbox:
        box = sandboxes.machines[0].box
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.execute_if, shell("echo x > f"), guard(("sleep 3931", SILENT)))
            tasks.start_soon(sandbox.execute, shell("sleep 3931"))
            while (await box.execute(["pgrep", "-x", "sleep"], 5))[0] != 0:  # noqa: ASYNC110 - not the request for it
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        assert await eventually(lambda: host_processes("sleep 3931") == [])
        await anyio.sleep(0.5)
        assert (await box.execute(["pgrep", "-f", "runner.pyz call"], 5))[0] == 1, "nobody waits any more"
        seen = await sandbox.execute(shell("true"))
        assert seen.text == SILENT
        again = await sandbox.execute_if(shell("echo x > f"), guard(("sleep 3931", ""), ("true", SILENT)))
        assert again == Refused(Refusal.HISTORY), "nobody knows what the cancelled command did"
        assert await output(sandbox, "ls") == "(no output)"
    assert sandbox.log == ["sleep 3931", "true", "ls"]
