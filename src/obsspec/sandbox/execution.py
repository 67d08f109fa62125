"""One numbered call of a sandbox on a server."""

from __future__ import annotations

import anyio

from obsspec.values import Observation, SandboxError, ToolCall


class Execution:
    """Goes on as long as somebody waits for it; its result is kept for those who ask again."""

    def __init__(self, sequence: int, call: ToolCall) -> None:
        self.sequence = sequence
        self.call = call
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.result: Observation | SandboxError = SandboxError(f"call {sequence} was abandoned")
        self._waiting = 0

    async def wait(self) -> Observation:
        """Cancelling the last waiter kills what the call runs. Raises `SandboxError`."""
        self._waiting += 1
        try:
            await self.done.wait()
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self.scope.cancel()
        if isinstance(self.result, SandboxError):
            raise self.result
        return self.result
