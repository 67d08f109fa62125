"""Calls of a provider's package that go on when their caller is cancelled.

The packages do not bear to be cancelled: transports lose connections of their pool, streams are left to be closed by
nobody, and some turn a cancellation into an error of their own. Here only the waiting is cancelled. What a cancelled
call was for is withdrawn in the sandbox, so it ends by itself soon after.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from obsspec.sandbox.providers.machine import Executed, LostError, Machine

FINISH_S = 3.0

Call = Callable[[], Awaitable[Executed]]


class Calls:
    """They live in `tasks` until they end, or until `finish`."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._running: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()

    async def wait(self, call: Call) -> Executed:
        """Its result; whatever it raises is a `LostError`."""
        outcomes: list[Executed | LostError] = []
        done = anyio.Event()
        self._tasks.start_soon(self._run, call, outcomes, done)
        await done.wait()
        (outcome,) = outcomes
        if isinstance(outcome, LostError):
            raise outcome
        return outcome

    async def finish(self) -> None:
        """The sandbox is deleted, so nothing that is under way has an end to wait for: after 3 s it is cancelled."""
        with anyio.move_on_after(FINISH_S, shield=True):
            while self._running:
                await self._ended.wait()
        for scope in self._running:
            scope.cancel()

    async def _run(self, call: Call, outcomes: list[Executed | LostError], done: anyio.Event) -> None:
        with anyio.CancelScope(shield=True) as scope:
            self._running.add(scope)
            try:
                outcomes.append(await call())
            except Exception as error:  # noqa: BLE001 - packages raise whatever their transports raise
                outcomes.append(LostError(str(error) or type(error).__name__))
            finally:
                self._running.remove(scope)
                ended, self._ended = self._ended, anyio.Event()
                ended.set()
        if scope.cancelled_caught:
            outcomes.append(LostError("the sandbox is closed"))
        done.set()


class DetachedMachine:
    """A `Machine` whose callers may be cancelled."""

    def __init__(self, machine: Machine, calls: Calls) -> None:
        self._machine = machine
        self._calls = calls

    async def write(self, path: str, content: bytes) -> None:
        async def call() -> Executed:
            await self._machine.write(path, content)
            return Executed(0, "")

        await self._calls.wait(call)

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> Executed:
        return await self._calls.wait(lambda: self._machine.execute(arguments, timeout_s))
