"""One output stream of a command: its head is kept, the rest is read and thrown away."""

from __future__ import annotations

import os

CHUNK = 1 << 16


class Stream:
    """Reads a pipe without blocking. Memory is bounded by `limit` bytes however much is written.

    `clipped` says that something was thrown away; `open` that somebody may still write.
    """

    def __init__(self, fd: int, limit: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.open = True
        self.clipped = False
        self._limit = limit
        self._head = bytearray()

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    def lines(self, start: int, end: int) -> bytes:
        """Whole lines of the head, from byte `start` and not beyond `end`."""
        return bytes(self._head[start : self._head.rfind(b"\n", start, end) + 1])

    def read(self) -> bool:
        """Take one chunk. False when there is nothing to read now, or ever again."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        room = self._limit - len(self._head)
        self._head += data[:room]
        self.clipped = self.clipped or len(data) > room
        return True

    def discard(self) -> None:
        """From now on, keep nothing."""
        self._limit = len(self._head)

    def close(self) -> None:
        if self.open:
            self.open = False
            os.close(self.fd)
