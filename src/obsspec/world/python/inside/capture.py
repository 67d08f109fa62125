"""What a run prints, as one text and by stream, with an upper limit."""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 1 << 18


class Stream(io.TextIOBase):
    """Keeps the first `LIMIT` characters; `clipped` says that there were more."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.size = 0
        self.clipped = False

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = LIMIT - self.size
        self.clipped = self.clipped or len(text) > room
        if room > 0:
            self.parts.append(text[:room])
            self.size += min(room, len(text))
        return len(text)

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Captured:
    """Standard output and error while in the block; whatever the code did to `sys` is undone after it."""

    def __init__(self) -> None:
        self.out, self.err = Stream(), Stream()

    def __enter__(self) -> Captured:
        self._before = (sys.stdout, sys.stderr, sys.stdin)
        sys.stdout, sys.stderr = self.out, self.err
        return self

    def __exit__(self, *_: Any) -> None:
        sys.stdout, sys.stderr, sys.stdin = self._before
