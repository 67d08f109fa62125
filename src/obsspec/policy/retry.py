"""Sends a failed request again, where the failure may pass and somebody waits for the result."""

from __future__ import annotations

import anyio

from obsspec.policy.transport import BusyError
from obsspec.protocols import OnTokens, Policy, Promotes
from obsspec.values import Completion, EngineError, Priority, Sampling, Tokens


class Retrying:
    """A `Policy` that makes up to `attempts` attempts at a committed call; each wait is twice as long as the last.

    An engine that says when to come back is asked then, but no later than `longest_wait_s`. Speculative calls are not
    retried: whatever they were for may be over. Cancelled while waiting: nothing is sent any more.
    """

    def __init__(
        self, policy: Policy, attempts: int = 3, *, first_wait_s: float = 0.5, longest_wait_s: float = 10.0
    ) -> None:
        self._policy = policy
        self._attempts = attempts
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self.retries = 0

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
        left = self._attempts if priority is Priority.COMMITTED else 1
        wait_s = self._first_wait_s
        while True:
            left -= 1
            try:
                return await self._policy.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
            except EngineError as error:
                if not error.retryable or left <= 0:
                    raise
                asked_s = error.retry_after_s if isinstance(error, BusyError) else wait_s
            await anyio.sleep(min(asked_s, self._longest_wait_s))
            self.retries += 1
            wait_s *= 2
