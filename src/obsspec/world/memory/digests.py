"""Digests: short fixed-length names for texts, keys and states."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

SIZE = 12  # bytes: at a million texts, two share a name with probability 1e-17


def digest(*parts: str | bytes) -> bytes:
    """The name of a sequence of parts; `digest("ab", "c")` differs from `digest("a", "bc")`."""
    sized: list[bytes] = []
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        sized += (b"%d:" % len(data), data)
    return blake2b(b"".join(sized), digest_size=SIZE).digest()


@lru_cache(maxsize=65536)
def key(space: bytes, *parts: str | bytes) -> bytes:
    """`digest` of short parts that are asked for again and again."""
    return digest(space, *parts)
