"""One sandbox at a provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from obsspec.sandbox import canonical, wire
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.local import ENVIRONMENT
from obsspec.sandbox.providers.call import Runner
from obsspec.sandbox.providers.detached import Calls, DetachedMachine
from obsspec.sandbox.providers.machine import Provider, RunnerSettings
from obsspec.sandbox.spec import SandboxSpec, Tree
from obsspec.values import Guard, Observation, Refused, ToolCall

_OF_THE_IMAGE = ("PATH", "HOME", "USER")


class ProviderSandbox:
    """A `TerminalSandbox` and `GuardedSandbox` behind a runner. `log` holds every command of the policy, in order.

    Cancelling `execute` kills what the call started; the next command finds the files as they are and the shell state
    of before. Guarded calls are executions of their own and wait in the sandbox.
    """

    def __init__(self, runner: Runner, tasks: TaskGroup) -> None:
        self._runner = runner
        self._tasks = tasks
        self._turn = anyio.Lock()
        self._commands: dict[int, str] = {}  # by number: sent, or known to have run ahead

    @property
    def log(self) -> list[str]:
        return [command for _, command in sorted(self._commands.items())]

    async def execute(self, call: ToolCall) -> Observation:
        """Run `call.command` in the shell. Raises `SandboxError` if the sandbox or the way to it fails."""
        async with self._turn:
            number = max(self._commands, default=0) + 1
            self._commands[number] = call.command
            return wire.observation_from_json(await self._ask({"command": call.command, "number": number}))

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        """As `GuardedSandbox.execute_if`."""
        answer = wire.answer_from_json(await self._ask(wire.guarded_to_json(call, guard)))
        if isinstance(answer, Observation):
            self._commands[guard.after + 1] = call.command
        return answer

    async def tree(self) -> Tree:
        async with self._turn:
            answer = await self._ask({"tree": Limits().tree_bytes})
            return wire.tree_from_json(answer["tree"])

    async def _ask(self, request: wire.Json) -> wire.Json:
        try:
            return await self._runner.ask(request)
        except anyio.get_cancelled_exc_class():
            self._tasks.start_soon(self._runner.tell_withdrawn)
            raise


@asynccontextmanager
async def opened(provider: Provider, spec: SandboxSpec, settings: RunnerSettings) -> AsyncGenerator[ProviderSandbox]:
    """A machine of the provider with a runner in it, set up. Raises `ConfigError`, `SandboxError`."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        calls = Calls(tasks)
        try:
            async with provider.machine(settings.lifetime_s) as machine:
                runner = Runner(DetachedMachine(machine, calls))
                await runner.start()
                await runner.ask({"open": opening(spec, settings)})
                yield ProviderSandbox(runner, tasks)
        except Exception as error:  # noqa: BLE001 - it leaves the group as itself, not inside an exception group
            failure = error
        finally:
            await calls.finish()
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def opening(spec: SandboxSpec, settings: RunnerSettings) -> wire.Json:
    """What the runner is told before the first command. PATH and user are those of the image."""
    usual = {name: value for name, value in ENVIRONMENT.items() if name not in _OF_THE_IMAGE}
    data = wire.spec_to_json(spec)
    return {
        "home": settings.home,
        "timeout_s": settings.timeout_s,
        "characters": settings.max_characters,
        "bytes": canonical.byte_limit(settings.max_characters),
        "profile": settings.profile.letters(),
        "environment": settings.profile.environment(usual),
        "directories": data["directories"],
        "files": [[path, content, mode] for path, content, mode in data["files"]],
        "setup": data["setup"],
    }
