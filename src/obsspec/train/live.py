"""A policy whose weights change while it serves: the old version finishes what it has begun, the new one does the rest.

Nothing is aborted, and nothing of an old version can be read by a new one: each version is a policy of its own, with
its own engine or its own name at the engine, and so without anybody's prefix cache.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from obsspec.protocols import OnTokens, Policy, Promotes
from obsspec.values import Completion, Priority, Sampling, Tokens

Opened = AbstractAsyncContextManager[Policy]


@dataclass(slots=True)
class _Version:
    """One version of the weights, open until it is no longer current and its last call has ended."""

    policy: Policy
    calls: int = 0
    current: bool = True
    over: anyio.Event = field(default_factory=anyio.Event)

    def retire(self) -> None:
        self.current = False
        self.settle()

    def settle(self) -> None:
        if not self.current and not self.calls:
            self.over.set()


class LivePolicy:
    """A `Policy`. Use `open_live_policy`.

    A call belongs to the version that is current when it is sent, whatever is published before it ends; its completion
    says which. `weight_version` is the version of a call sent now.
    """

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._open: list[_Version] = []  # the last one is current
        self._publishing = anyio.Lock()

    @property
    def weight_version(self) -> str:
        return self._open[-1].policy.weight_version

    @property
    def busy(self) -> int:
        """Calls in flight, at all versions."""
        return sum(version.calls for version in self._open)

    @property
    def versions(self) -> tuple[str, ...]:
        """Those that are open: older ones with calls to finish, and last the current one."""
        return tuple(version.policy.weight_version for version in self._open)

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        """The call may be at any open version."""
        for version in self._open:
            if isinstance(version.policy, Promotes):
                version.policy.promote(prompt, sampling)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        version = self._open[-1]
        version.calls += 1
        try:
            return await version.policy.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
        finally:
            version.calls -= 1
            version.settle()

    async def publish(self, opened: Opened) -> None:
        """Opens the new version, then sends every further call to it. The one before it closes after its last call.

        Whatever opening raises is raised here, and the version before stays current. Cancelled: likewise.
        """
        async with self._publishing:
            await self._tasks.start(self._keep, opened)

    async def _keep(self, opened: Opened, *, task_status: TaskStatus[None]) -> None:
        async with opened as policy:
            version = _Version(policy)
            for before in self._open:
                before.retire()
            self._open.append(version)
            try:
                task_status.started()
                await version.over.wait()
            finally:
                self._open.remove(version)


@asynccontextmanager
async def open_live_policy(first: Opened) -> AsyncGenerator[LivePolicy, None]:
    """Every version that is still open closes with the context. An error raised inside is re-raised as it is."""
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        live = LivePolicy(tasks)
        try:
            await live.publish(first)
            yield live
        except Exception as raised:  # noqa: BLE001 - re-raised below, outside the task group that would wrap it
            error = raised
        finally:
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error
