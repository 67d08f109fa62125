"""The clients that a session hands to a loop: the protocols of a policy and a sandbox, and nothing new to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obsspec.protocols import OnTokens, Sandbox
from obsspec.values import Completion, Observation, Priority, Sampling, Tokens, ToolCall

if TYPE_CHECKING:
    from obsspec.speculation.session import Session


class SessionPolicy:
    """The policy client of a session: same protocol, same results, sometimes sooner."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def weight_version(self) -> str:
        return self._session.weight_version

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        return await self._session.generate(prompt, sampling, on_tokens)


class SessionSandbox:
    """The sandbox client of a session: runs exactly what the loop asks for, and reports the turn's observations.

    A call that was sent ahead and ran is not run again: the loop gets its observation.
    """

    def __init__(self, session: Session, inner: Sandbox) -> None:
        self._session = session
        self._inner = inner

    async def execute(self, call: ToolCall) -> Observation:
        observation = await self._session.take(call)
        if observation is None:
            observation = await self._inner.execute(call)
        self._session.executed(observation)
        return observation
