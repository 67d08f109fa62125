"""The wire between a sandbox and its owner: a frame is a list of byte strings.

Layout: u32 number of fields, then u32 length and bytes of each field (big endian). Nothing is evaluated, so a frame
from a hostile process can at worst be refused.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


WORD = 4
MAX_FIELDS = 1_000_000
MAX_BYTES = 1 << 28


def encode(fields: Iterable[bytes]) -> bytes:
    """One frame."""
    fields = list(fields)
    parts = [len(fields).to_bytes(WORD, "big")]
    for field in fields:
        parts.append(len(field).to_bytes(WORD, "big"))
        parts.append(field)
    return b"".join(parts)


class Decoder:
    """Bytes in, in any chunking; whole frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The frames that `data` completes. Raises ValueError on a frame with too many fields or bytes."""
        self._buffer += data
        if len(self._buffer) > MAX_BYTES:
            raise ValueError(f"a frame of more than {MAX_BYTES} bytes")
        frames: list[list[bytes]] = []
        while (end := _frame_end(self._buffer)) is not None:
            frames.append(_fields(bytes(self._buffer[:end])))
            del self._buffer[:end]
        return frames


def _word(data: bytes | bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + WORD], "big")


def _frame_end(data: bytearray) -> int | None:
    if len(data) < WORD:
        return None
    count, at = _word(data, 0), WORD
    if count > MAX_FIELDS:
        raise ValueError(f"a frame of {count} fields")
    for _ in range(count):
        if len(data) < at + WORD:
            return None
        at += WORD + _word(data, at)
    return at if len(data) >= at else None


def _fields(data: bytes) -> list[bytes]:
    fields: list[bytes] = []
    at = WORD
    for _ in range(_word(data, 0)):
        size = _word(data, at)
        fields.append(data[at + WORD : at + WORD + size])
        at += WORD + size
    return fields
