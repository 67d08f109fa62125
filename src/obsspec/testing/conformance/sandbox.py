"""What every `Sandbox` with a shell must do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio

from obsspec.protocols import Sandbox
from obsspec.testing.conformance.guarded import check_guards
from obsspec.testing.conformance.promise import OpenProbe, cancelled_after, nothing_open, require
from obsspec.values import Observation, SandboxError, ToolCall

SandboxFactory = Callable[[], AbstractAsyncContextManager[Sandbox]]


# Odd durations, so that a probe can find these commands among all processes of a machine.
SHORT, LONG = "sleep 1.03125", "sleep 30.03125"


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


async def check_sandbox(
    factory: SandboxFactory,
    *,
    running: OpenProbe | None = None,
    patience_s: float = 5.0,
) -> None:
    """Raises `BrokenPromiseError` for the first promise that is not kept. Takes a few seconds on a real shell.

    `factory` opens a fresh sandbox each time. `running` counts the commands that run in all of them now.
    """
    async with factory() as sandbox:
        await _outputs(sandbox)
        await _state(sandbox)
    await _equal_sandboxes_give_equal_answers(factory)
    await _sandboxes_are_apart(factory)
    await _the_event_loop_goes_on(factory)
    await check_guards(factory)
    await _cancels(factory, running, patience_s)
    await _leaving_ends_everything(factory, running, patience_s)


async def _run(sandbox: Sandbox, command: str, exit_code: int = 0) -> Observation:
    observation = await sandbox.execute(bash(command))
    require(observation.exit_code == exit_code, f"`{command}` exits with {exit_code}, not {observation.exit_code}")
    return observation


async def _outputs(sandbox: Sandbox) -> None:
    require("hello" in (await _run(sandbox, "echo hello")).text, "the policy sees what was printed")
    require(not (await _run(sandbox, "echo hello")).empty, "what printed something is not empty")
    silent = await _run(sandbox, "true")
    require(silent.empty, "what printed nothing is empty")
    require(silent == await _run(sandbox, "true"), "equal commands without effect give equal observations")
    await _run(sandbox, "(exit 3)", 3)
    missing = await sandbox.execute(bash("cat no-such-file"))
    require(missing.exit_code not in (0, None), "a failing command is an observation with its exit code")
    require("no-such-file" in missing.text, "the policy sees what was printed on standard error")
    require(missing.text != silent.text, "a failure looks different from success")


async def _state(sandbox: Sandbox) -> None:
    await _run(sandbox, "export GREETING=hello")
    require("hello" in (await _run(sandbox, "echo $GREETING")).text, "variables last")
    await _run(sandbox, "echo one > f")
    await _run(sandbox, "echo two > f")
    require("two" in (await _run(sandbox, "cat f")).text, "files last, and commands run in order")
    await _run(sandbox, "cd /tmp")
    require("/tmp" in (await _run(sandbox, "pwd")).text, "the working directory lasts")
    require("three" in (await _run(sandbox, "echo two; echo three")).text, "a command line is taken as it is")


async def _equal_sandboxes_give_equal_answers(factory: SandboxFactory) -> None:
    commands = ("pwd", "echo a > g", "cat g", "cat no-such-file", "frobnicate")

    async def session() -> list[Observation]:
        async with factory() as sandbox:
            return [await sandbox.execute(bash(command)) for command in commands]

    require(await session() == await session(), "the same commands in a fresh sandbox give the same observations")


async def _sandboxes_are_apart(factory: SandboxFactory) -> None:
    async with factory() as a, factory() as b:
        await _run(a, "echo mine > only-in-a")
        require((await b.execute(bash("cat only-in-a"))).exit_code != 0, "a sandbox does not see another's files")


async def _the_event_loop_goes_on(factory: SandboxFactory) -> None:
    """While a command takes half a second, everybody else is served."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            start = anyio.current_time()
            await anyio.sleep(0.01)
            longest = max(longest, anyio.current_time() - start)

    async with factory() as sandbox, anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await _run(sandbox, "sleep 0.5")
        tasks.cancel_scope.cancel()
    require(longest < 0.4, f"a running command does not block the event loop; it stood still for {longest:.2f} s")


async def _cancels(factory: SandboxFactory, running: OpenProbe | None, patience_s: float) -> None:
    async with factory() as sandbox:
        await cancelled_after(lambda: sandbox.execute(bash(f"{SHORT}; echo x > late")), 0.2, patience_s)
        await nothing_open(running, patience_s)
        await anyio.sleep(1.2)
        try:
            with anyio.fail_after(patience_s):
                late = await sandbox.execute(bash("cat late"))
        except SandboxError:
            return  # a sandbox may be unusable after a cancelled call, if it says so
        require(late.exit_code != 0, "a cancelled command does not go on")


async def _leaving_ends_everything(factory: SandboxFactory, running: OpenProbe | None, patience_s: float) -> None:
    async def leave() -> None:
        async with factory() as sandbox:
            await sandbox.execute(bash(LONG))

    await cancelled_after(leave, 0.5, patience_s)
    await nothing_open(running, patience_s)
