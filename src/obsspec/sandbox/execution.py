"""One numbered call of a sandbox on a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from obsspec.values import Observation, Refused, SandboxError, ToolCall

Hear = Callable[[str], Awaitable[None]]


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
        self.beginning = ""  # of the text that will be the result, as far as it has arrived
        self._news = anyio.Event()
        self._waiting = 0

    def keep(self) -> bool:
        """It is about to begin: False if nobody wants it any more; from then on it is kept."""
        self.kept = not self.scope.cancel_called
        return self.kept

    def begins(self, text: str) -> None:
        """It is certain that the result begins like this."""
        if not self.done.is_set() and len(text) > len(self.beginning):
            self.beginning = text
            self._tell()

    def end(self) -> None:
        """The result is there."""
        self.done.set()
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _listen(self, hear: Hear) -> None:
        heard = ""
        while not self.done.is_set():
            news = self._news
            if self.beginning != heard:
                heard = self.beginning
                await hear(heard)
            else:
                await news.wait()

    async def wait(self, hear: Hear | None = None) -> Observation | Refused:
        """The result; until it is there, `hear` gets its beginnings.

        Cancelling the last waiter withdraws the call, and kills what it runs unless it is kept.

        Raises `SandboxError`.
        """
        self._waiting += 1
        try:
            if hear is not None:
                await self._listen(hear)
            await self.done.wait()
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self.kept:
                self.scope.cancel()
        if isinstance(self.result, SandboxError):
            raise self.result
        return self.result
