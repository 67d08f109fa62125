"""A policy whose first call of a rollout is already on its way: it is generated while the sandbox is set up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio import TaskHandle
from anyio.abc import TaskGroup

from obsspec.protocols import OnTokens, Policy, Promotes
from obsspec.values import Completion, GenerationKey, Priority, Sampling, Tokens


class HeadStart:
    """A `Policy`. Use `open_head_start`.

    The first call with the key that was started gets what was started, finished or not, at most once; every other call
    goes to the policy. Cancelling that call ends the request.
    """

    def __init__(self, policy: Policy, key: GenerationKey, tasks: TaskGroup) -> None:
        self._policy = policy
        self._key = key
        self._completion: Completion | None = None
        self._error: Exception | None = None
        self._done = anyio.Event()
        self._tokens = 0
        self._on_tokens: OnTokens | None = None
        self._started: TaskHandle[None] | None = tasks.start_soon(self._generate, name="head-start")

    @property
    def weight_version(self) -> str:
        return self._policy.weight_version

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        if isinstance(self._policy, Promotes):
            self._policy.promote(prompt, sampling)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        started, wanted = self._started, GenerationKey(prompt, sampling)
        if started is None or wanted != self._key:
            return await self._policy.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
        self._started, self._on_tokens = None, on_tokens
        if self._tokens:
            self._count(self._tokens)
        try:
            await self._done.wait()
        finally:
            started.cancel()  # nothing is left to cancel once it is done
        if self._error is not None:
            raise self._error
        assert self._completion is not None
        return self._completion

    def _count(self, tokens: int) -> None:
        self._tokens = tokens
        if self._on_tokens is not None:
            self._on_tokens(tokens)

    async def _generate(self) -> None:
        key = self._key
        try:
            self._completion = await self._policy.generate(key.prompt, key.sampling, on_tokens=self._count)
        except Exception as error:  # noqa: BLE001 - raised in the call that asks for it
            self._error = error
        self._done.set()


@asynccontextmanager
async def open_head_start(policy: Policy, key: GenerationKey) -> AsyncGenerator[HeadStart, None]:
    """Starts the call. Leaving the context, in any way, leaves no request behind.

    An error raised inside the context is re-raised as it is, not as a group.
    """
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield HeadStart(policy, key, tasks)
        except Exception as raised:  # noqa: BLE001 - re-raised below, outside the task group that would wrap it
            error = raised
        finally:
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error
