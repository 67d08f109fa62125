"""One sandbox of a server, with the rules that make its calls safe to repeat and to abandon."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from obsspec.sandbox.execution import Execution
from obsspec.sandbox.latency import LatencySpec
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.local_sandbox import LocalSandbox
from obsspec.sandbox.spec import SandboxSpec, Tree
from obsspec.sandbox.wire import seed_of
from obsspec.values import ConfigError, Guard, SandboxError, ToolCall


class Room:
    """Keeps a sandbox open and runs numbered calls in it, each at most once, with latency on both ways.

    A repeated number gets the result of the first time. A higher one means that the client has given up whatever was
    running. Half of the latency passes before the command, half after it, for each request by itself: those that are
    under way together are not delayed by each other. Guarded calls wait here, at the far end of the wire.
    """

    def __init__(self, sandboxes: LocalSandboxes, spec: SandboxSpec, latency: LatencySpec) -> None:
        self._sandboxes = sandboxes
        self._spec = spec
        self._latency = latency
        self._seed = seed_of(spec)
        self._last: Execution | None = None
        self._running: dict[int, tuple[Execution, float]] = {}  # by number, with the way back; only one does run
        self._failure: ConfigError | SandboxError | None = None
        self._scope = anyio.CancelScope()
        self._opened = anyio.Event()  # or failed to
        self._closed = anyio.Event()
        self._sandbox: LocalSandbox
        self._tasks: TaskGroup

    async def live(self) -> None:
        """Open, and stay open until `close`."""
        try:
            with self._scope:
                async with self._sandboxes.open(self._spec) as self._sandbox, anyio.create_task_group() as self._tasks:
                    self._sandbox.listen(self._hear)
                    self._opened.set()
                    await anyio.sleep_forever()
        except (ConfigError, SandboxError) as error:
            self._failure = error
        finally:
            self._opened.set()
            self._closed.set()

    async def ready(self) -> None:
        """Returns when the sandbox is open; raises what opening raised, or `SandboxError` if it is closed."""
        await self._opened.wait()
        if self._failure is not None:
            raise self._failure
        if self._closed.is_set() or self._scope.cancel_called:
            raise SandboxError("the sandbox is closed")

    async def close(self) -> None:
        """Returns when no process of the sandbox is left."""
        self._scope.cancel()
        await self._closed.wait()

    async def execute(self, sequence: int, call: ToolCall) -> Execution:
        """Raises `SandboxError` for a number that is too old to have its result kept."""
        await self.ready()
        last = self._last
        if last is None or sequence > last.sequence:
            execution = self._last = Execution(sequence, call)
            self._tasks.start_soon(self._perform, execution, last)
        elif sequence == last.sequence:
            execution = last
        else:
            raise SandboxError(f"call {sequence} is older than the last one, {last.sequence}")
        return execution

    async def execute_if(self, call: ToolCall, guard: Guard) -> Execution:
        """Given up before it runs, the call is withdrawn; once it runs it goes on, and may be asked for again."""
        await self.ready()
        execution = Execution(guard.after + 1, call)
        self._tasks.start_soon(self._perform_if, execution, guard)
        return execution

    async def tree(self) -> Tree:
        await self.ready()
        return await self._sandbox.tree()

    async def _perform(self, execution: Execution, previous: Execution | None) -> None:
        try:
            if previous is not None:
                previous.scope.cancel()
                await previous.done.wait()
            with execution.scope:
                await self._there_and_back(execution, None)
        finally:
            execution.end()

    async def _perform_if(self, execution: Execution, guard: Guard) -> None:
        try:
            with execution.scope:
                await self._there_and_back(execution, guard)
        finally:
            execution.end()

    async def _there_and_back(self, execution: Execution, guard: Guard | None) -> None:
        call, number = execution.call, execution.sequence
        way_s = self._latency.draw(self._seed, number) / 2
        await anyio.sleep(way_s)
        self._running[number] = execution, way_s
        try:
            if guard is None:
                execution.result = await self._sandbox.execute(call, number)
            else:
                execution.result = await self._sandbox.execute_if(call, guard, execution.keep)
        except SandboxError as error:
            execution.result = error
        finally:
            if self._running.get(number, (None,))[0] is execution:
                del self._running[number]
        await anyio.sleep(way_s)

    def _hear(self, number: int, beginning: str) -> None:
        """A command says how its answer begins: that takes its time on the wire too."""
        if number in self._running:
            execution, way_s = self._running[number]
            self._tasks.start_soon(self._bring, execution, beginning, way_s)

    @staticmethod
    async def _bring(execution: Execution, beginning: str, way_s: float) -> None:
        await anyio.sleep(way_s)
        execution.begins(beginning)
