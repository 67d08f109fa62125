"""A provider without a package of its own: boxes, and a wire that delays, loses and repeats what is sent over it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

import anyio
from anyio.abc import TaskGroup

from obsspec.sandbox.providers.lease import lease
from obsspec.sandbox.providers.machine import Executed, LostError, RunnerSettings
from obsspec.sandbox.providers.sandbox import ProviderSandbox, opened
from obsspec.sandbox.spec import SandboxSpec
from tests.sandbox.providers.box import PYTHON, Box, GoneError, start_box


class Mishap(StrEnum):
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    CUT = "cut"  # half of the output arrives
    TWICE = "twice"  # the provider executes it twice, at the same time
    LATE = "late"  # the caller is told that it failed, and then it is executed
    TIMEOUT = "timeout"  # the provider ends the execution before its time


@dataclass(slots=True)
class Wire:
    """`seed` decides how long everything takes and, once `troubled`, which executions go wrong."""

    seed: int = 0
    slowest_s: float = 0.0
    mishaps: tuple[Mishap, ...] = ()
    share: float = 0.3
    troubled: bool = False
    executed: int = 0
    drawn: int = 0
    seen: list[Mishap] = field(default_factory=list[Mishap])

    async def delay(self) -> None:
        self.executed += 1
        await anyio.sleep(Random(f"{self.seed} {self.executed}").random() * self.slowest_s)

    def mishap(self) -> Mishap | None:
        if not self.troubled or not self.mishaps:
            return None
        self.drawn += 1
        draw = Random(f"mishap {self.seed} {self.drawn}")
        if draw.random() > self.share:
            return None
        mishap = draw.choice(self.mishaps)
        self.seen.append(mishap)
        return mishap


class BoxMachine:
    def __init__(self, box: Box, wire: Wire, tasks: TaskGroup) -> None:
        self.box = box
        self.wire = wire
        self._tasks = tasks

    async def write(self, path: str, content: bytes) -> None:
        await self.box.write(path, content)

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> Executed:
        await self.wire.delay()
        mishap = self.wire.mishap()
        match mishap:
            case Mishap.REQUEST_LOST:
                raise LostError("planned: the request was lost")
            case Mishap.LATE:
                self._tasks.start_soon(self._later, arguments, timeout_s, 0.5)
                raise LostError("planned: late")
            case Mishap.TWICE:
                self._tasks.start_soon(self._later, arguments, timeout_s, 0.0)
            case Mishap.TIMEOUT:
                timeout_s = 0.1
            case _:
                pass
        executed = await self._execute(arguments, timeout_s)
        await self.wire.delay()
        if mishap is Mishap.ANSWER_LOST:
            raise LostError("planned: the answer was lost")
        if mishap is Mishap.CUT:
            return Executed(0, executed.output[: len(executed.output) // 2])
        return executed

    async def _later(self, arguments: Sequence[str], timeout_s: float, after_s: float) -> None:
        await anyio.sleep(after_s)
        with suppress(LostError):  # nobody is told
            await self._execute(arguments, timeout_s)

    async def _execute(self, arguments: Sequence[str], timeout_s: float) -> Executed:
        try:
            code, output = await self.box.execute(arguments, timeout_s)
        except GoneError as error:
            raise LostError("the sandbox has gone") from error
        return Executed(code, output)


class BoxSandboxes:
    """Opens sandboxes in boxes. `machines` has those that were made."""

    def __init__(self, settings: RunnerSettings | None = None, wire: Wire | None = None, path: str = "") -> None:
        self.machines: list[BoxMachine] = []
        self.wire = wire or Wire()
        self._settings = settings or RunnerSettings()
        self._path = path or f"{PYTHON}:/usr/bin:/bin"

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ProviderSandbox]:
        return opened(self, spec, self._settings)

    @asynccontextmanager
    async def machine(self, lifetime_s: float) -> AsyncGenerator[BoxMachine]:
        async with anyio.create_task_group() as tasks:

            async def create() -> BoxMachine:
                machine = BoxMachine(await start_box(tasks, self._path), self.wire, tasks)
                self.machines.append(machine)
                return machine

            failure: Exception | None = None
            try:
                async with lease(create, _close) as machine:
                    yield machine
            except Exception as error:  # noqa: BLE001 - leaves the group as itself
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure


async def _close(machine: BoxMachine) -> None:
    await machine.box.close()
