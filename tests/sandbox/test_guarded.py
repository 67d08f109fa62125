"""Calls sent ahead with a condition, in real sandboxes: each runs once, in order, or not at all."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from obsspec.history import guard_after
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.local_sandbox import LocalSandbox
from obsspec.sandbox.remote import RemoteSandboxes
from obsspec.sandbox.remote_sandbox import RemoteSandbox
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.speculation.trace import SpeculationReport
from obsspec.testing import Move, ScriptedPolicy, ScriptedWorldModel, always, recite, toy_renderer
from obsspec.testing.conformance import check_guards
from obsspec.testing.delays import constant
from obsspec.values import Context, Exchange, Guard, Observation, Refusal, Refused, SandboxError, StopReason
from tests.sandbox.support import eventually, gone, host_processes, output, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
SILENT = "(no output)\n(exit_code=0)"
ONE = "/sandboxes/one"
Guarded = LocalSandbox | RemoteSandbox


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def opened(place: str) -> AsyncGenerator[Guarded]:
    if place == "local":
        async with LocalSandboxes(1.0).open(SandboxSpec()) as sandbox:
            yield sandbox
        return
    async with serve_sandboxes(latency="0", timeout_s=1.0) as sandboxes, sandboxes.open(SandboxSpec()) as remote:
        yield remote


def guard(*steps: tuple[str, str]) -> Guard:
    return guard_after([Exchange((shell(command),), (Observation(text),)) for command, text in steps])


async def test_the_promises_of_guarded_calls(place: str) -> None:
    await check_guards(lambda: opened(place))


async def after(sandbox: Guarded, command: str) -> Observation | Refused:
    """What becomes of a call that is guarded by exactly what `command` answers."""
    seen = await sandbox.execute(shell(command))
    return await sandbox.execute_if(shell("echo x > ran"), guard((command, seen.text)))


@pytest.mark.parametrize(
    "command",
    ["sleep 5", "sleep 3911 & echo started", "kill -9 $$", "exec 1>&-; sleep 1.5"],
    ids=["timed out", "background job", "killed shell", "timed out silently"],
)
async def test_c21_no_call_comes_early_after_a_command_that_left_its_state_open(place: str, command: str) -> None:
    async with opened(place) as sandbox:
        assert await after(sandbox, command) == Refused(Refusal.STATE)
        assert await output(sandbox, "ls") == "(no output)"
    assert await gone("sleep 3911")


async def test_c21_no_call_comes_early_after_a_cancelled_command(place: str) -> None:
    async with opened(place) as sandbox:
        with anyio.move_on_after(0.3):
            await sandbox.execute(shell("sleep 3912"))
        seen = await sandbox.execute(shell("true"))
        for steps in ([("true", SILENT)], [("sleep 3912", ""), ("true", seen.text)]):
            assert await sandbox.execute_if(shell("echo x > ran"), guard(*steps)) == Refused(Refusal.HISTORY)
        assert await output(sandbox, "ls") == "(no output)"


async def test_c20_the_log_has_what_ran_in_order(place: str) -> None:
    steps = [("echo a > f", SILENT), ("echo b >> f", SILENT), ("cat f", "a\nb\n(exit_code=0)")]
    async with opened(place) as sandbox:
        async with anyio.create_task_group() as tasks:
            for number in (2, 1):
                tasks.start_soon(sandbox.execute_if, shell(steps[number][0]), guard(*steps[:number]))
            tasks.start_soon(sandbox.execute_if, shell("echo other > f"), guard(("echo a > f", "something else")))
            await anyio.sleep(0.2)
            await sandbox.execute(shell(steps[0][0]))
        assert sandbox.log == [command for command, _ in steps]
        assert await output(sandbox, "cat f") == "a\nb"
        assert sandbox.log[-1] == "cat f"


# On the wire -------------------------------------------------------------------------------------------------------


async def test_requests_under_way_together_share_the_latency() -> None:
    """Four commands in the time of one, where one after the other they take four times as long."""
    commands = [f"echo {number}" for number in range(4)]
    steps = [(command, f"{number}\n(exit_code=0)") for number, command in enumerate(commands)]
    async with serve_sandboxes(latency="0.6") as remote, remote.open(SandboxSpec()) as sandbox:
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for number, command in enumerate(commands):
                tasks.start_soon(sandbox.execute_if, shell(command), guard(*steps[:number]))
        took = time.monotonic() - began
        assert sandbox.log == commands
        assert 0.6 <= took < 1.2


@asynccontextmanager
async def raw(remote: RemoteSandboxes) -> AsyncGenerator[httpx2.AsyncClient]:
    spec = {"directories": [], "files": [], "setup": [], "image": ""}
    async with httpx2.AsyncClient(base_url=remote.url, trust_env=False, timeout=30) as client:
        await client.put(ONE, json=spec)
        yield client


def request(command: str, condition: Guard) -> dict[str, object]:
    return {"command": command, "after": condition.after, "digest": condition.digest}


async def test_a_lost_answer_is_asked_for_again_and_never_run_again() -> None:
    """The client hangs up while the command runs: it goes on, and the same request gets its answer."""
    body = request("sleep 0.8; echo x >> f; cat f", guard())
    async with serve_sandboxes(latency="0") as remote, raw(remote) as client:
        with anyio.move_on_after(0.3):
            await client.post(f"{ONE}/execute_if", json=body)
        for _ in range(2):
            assert (await client.post(f"{ONE}/execute_if", json=body)).json()["text"] == "x\n(exit_code=0)"
        plain = await client.post(f"{ONE}/execute", json={"sequence": 2, "command": "cat f"})
        assert plain.json()["text"] == "x\n(exit_code=0)"


async def test_d11_hanging_up_withdraws_what_has_not_begun() -> None:
    body = request("echo x > f", guard(("true", SILENT)))
    async with serve_sandboxes(latency="0") as remote, raw(remote) as client:
        with anyio.move_on_after(0.3):
            await client.post(f"{ONE}/execute_if", json=body)
        await anyio.sleep(0.2)
        await client.post(f"{ONE}/execute", json={"sequence": 1, "command": "true"})
        listed = await client.post(f"{ONE}/execute", json={"sequence": 2, "command": "ls"})
        assert listed.json()["text"] == SILENT
        assert (await client.post(f"{ONE}/execute_if", json=body)).json() == {"refused": "history"}


async def test_another_command_under_a_number_that_ran_ahead_is_an_error() -> None:
    async with serve_sandboxes(latency="0") as remote, raw(remote) as client:
        await client.post(f"{ONE}/execute_if", json=request("echo x > f", guard()))
        plain = await client.post(f"{ONE}/execute", json={"sequence": 1, "command": "rm f"})
        assert plain.status_code == 502
        assert "another was sent ahead and ran" in plain.json()["error"]
        assert (await client.post(f"{ONE}/execute_if", json={"command": "ls"})).status_code == 400


async def test_closing_ends_what_waits_and_what_runs() -> None:
    async with serve_sandboxes(latency="0") as remote, anyio.create_task_group() as tasks:
        async with remote.open(SandboxSpec()) as sandbox:
            errors: list[str] = []

            async def ahead(command: str, condition: Guard) -> None:
                try:
                    await sandbox.execute_if(shell(command), condition)
                except SandboxError as error:
                    errors.append(str(error))

            tasks.start_soon(ahead, "sleep 3913", guard())
            tasks.start_soon(ahead, "echo never", guard(("sleep 3913", SILENT)))
            assert await eventually(lambda: host_processes("sleep 3913") != [])
        assert await gone("sleep 3913")
        tasks.cancel_scope.cancel()
    assert len(errors) <= 2


async def test_d09_withdrawn_calls_keep_no_connections() -> None:
    async with serve_sandboxes(latency="0") as remote, remote.open(SandboxSpec()) as sandbox:
        for number in range(30):
            with anyio.move_on_after(0.003 * number):
                await sandbox.execute_if(shell("echo x > f"), guard(("true", f"{number}")))
        began = time.monotonic()
        assert await output(sandbox, "ls") == "(no output)"
        assert time.monotonic() - began < 3


async def test_a_server_that_dies_ends_the_rollout_and_nothing_is_made_up() -> None:
    """While one call runs and others wait for it. Another server at the same place knows nothing of them."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    renderer = toy_renderer()
    rules = RolloutRules(renderer, Limits(20, 200, 4000), "seed")
    policy = ScriptedPolicy(
        recite(*[renderer.call("echo x >> f")] * 3, renderer.call("sleep 3914"), renderer.answer("ok"))
    )
    model = ScriptedWorldModel(lambda context: (Observation(SILENT),), always(Move.RIGHT))
    settings = SpeculationSettings(depth=4, guarded=True)
    async with serve_sandboxes(latency="0.4", port=port) as remote, remote.open(SandboxSpec()) as sandbox:
        async with open_session(policy, model, rules, settings=settings) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(_kill_server_when_it_runs, "sleep 3914", port)
            trajectory = await run_loop("go", rules, session.policy, session.sandbox(sandbox))
        assert trajectory.stop is StopReason.SANDBOX_ERROR
        assert len(trajectory.turns) == 3
        assert sandbox.log[:3] == ["echo x >> f"] * 3
    assert await gone("sleep 3914")


async def _kill_server_when_it_runs(command: str, port: int) -> None:
    assert await eventually(lambda: host_processes(command) != [], seconds=20)
    await anyio.sleep(1)  # the loop has the answers before it
    for server in host_processes(f"--port {port}"):
        os.kill(server, signal.SIGKILL)


# The whole way -----------------------------------------------------------------------------------------------------

COMMANDS = ("mkdir d", "echo one > d/f", "cat d/f", "cd d", "cat missing", "echo two >> f; cat f", "ls")


def what_it_says(number: int) -> Observation:
    texts = ("", "", "one", "", "cat: missing: No such file or directory", "one\ntwo", "f")
    return Observation(f"{texts[number] or '(no output)'}\n(exit_code={int(number == 4)})")


async def test_both_arms_are_equal_over_a_server_and_most_of_the_latency_is_hidden() -> None:
    """A wrong prediction in the middle included: the transition of `cat missing` is guessed wrong."""
    renderer, limits = toy_renderer(), Limits(20, 200, 4000)
    script = recite(*map(renderer.call, COMMANDS), renderer.answer("ok"))

    def predict(context: Context) -> tuple[Observation, ...]:
        number = len(context.history)
        return (Observation("?") if number == 4 else what_it_says(number),)

    results: list[Trajectory] = []
    logs: list[list[str]] = []
    reports: list[SpeculationReport] = []
    async with serve_sandboxes(latency="0.5") as remote:
        for guarded in (False, True):
            policy = ScriptedPolicy(script, first_s=constant(0.1))
            async with remote.open(SandboxSpec()) as sandbox:
                rules = RolloutRules(renderer, limits, "seed")
                if not guarded:
                    results.append(await run_loop("go", rules, policy, sandbox))
                else:
                    model = ScriptedWorldModel(predict, always(Move.RIGHT))
                    settings = SpeculationSettings(depth=4, guarded=True)
                    async with open_session(policy, model, rules, settings=settings) as session:
                        results.append(await run_loop("go", rules, session.policy, session.sandbox(sandbox)))
                        session.check_committed()
                    reports.append(session.report)
                logs.append(sandbox.log)
    a, b = results
    assert (a.ids, a.logprobs, a.stop, a.answer) == (b.ids, b.logprobs, b.stop, b.answer)
    assert [turn.observations for turn in a.turns] == [turn.observations for turn in b.turns]
    assert logs[0] == logs[1] == list(COMMANDS)
    (report,) = reports
    assert report.guarded_ran == 5, "all but the first, and the one after the wrong prediction"
    assert (a.agent_s - b.agent_s) / a.tool_s > 0.5
