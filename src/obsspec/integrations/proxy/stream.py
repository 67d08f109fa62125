"""The answer to one request as bytes: written by whoever reads from the engine, read by whoever serves the client."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import anyio

from obsspec.integrations.proxy.wire import Headers

WINDOW = 1 << 20  # bytes that may wait for a client that reads slowly before the engine has to wait, too


@dataclass(frozen=True, slots=True)
class Start:
    status: int
    headers: Headers


class Stream:
    """One writer, at most one reader, one event loop. Nothing is lost or repeated; what was read is forgotten."""

    def __init__(self) -> None:
        self.start: Start | None = None
        self.ended = False
        self.failure = ""  # why there is no more
        self.unread = 0
        self.has_reader = False
        self._chunks: deque[bytes] = deque()
        self._changed = anyio.Event()

    # The writer's side --------------------------------------------------------------------------------------------

    def begin(self, start: Start) -> None:
        self.start = start
        self._wake()

    def write(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.unread += len(chunk)
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def fail(self, why: str) -> None:
        """No more will come. What came is still there."""
        if not self.ended:
            self.failure = self.failure or why
            self._wake()

    async def room(self) -> None:
        """Returns when the reader has caught up. Without a reader there is always room: whoever writes counts."""
        while self.has_reader and self.unread > WINDOW and not self.failure:
            await self._changed.wait()

    # The reader's side --------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self.ended or bool(self.failure)

    async def started(self) -> Start | None:
        """The status and headers; None if the answer failed before it began."""
        while self.start is None and not self.failure:
            await self._changed.wait()
        return self.start

    async def complete(self) -> bool:
        """Waits for the end. False: it failed on the way."""
        while not self.over:
            await self._changed.wait()
        return self.ended

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes as they came, until the end or a failure."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self.unread -= len(chunk)
                self._wake()
                yield chunk
            if self.over:
                return
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
