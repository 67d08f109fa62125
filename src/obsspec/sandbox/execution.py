"""One numbered call of a sandbox on a server."""

from __future__ import annotations

import anyio

from obsspec.values import Observation, Refused, SandboxError, ToolCall


class Execution:
    """Goes on as long as somebody waits for it; its result is kept for those who ask again.

    `kept`: it goes on although nobody waits, because what it runs will be committed.
    """

    def __init__(self, sequence: int, call: ToolCall) -> None:
        self.sequence = sequence
        self.call = call
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.result: Observation | Refused | SandboxError = SandboxError(f"call {sequence} was abandoned")
        self.kept = False
        self._waiting = 0

    def keep(self) -> bool:
        """It is about to begin: False if nobody wants it any more; from then on it is kept."""
        self.kept = not self.scope.cancel_called
        return self.kept

    async def wait(self) -> Observation | Refused:
        """Cancelling the last waiter withdraws the call, and kills what it runs unless it is kept.

        Raises `SandboxError`.
        """
        self._waiting += 1
        try:
            await self.done.wait()
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self.kept:
                self.scope.cancel()
        if isinstance(self.result, SandboxError):
            raise self.result
        return self.result
