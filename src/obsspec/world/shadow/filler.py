"""Content for files whose content is not known: as many bytes, lines and words as were seen, of letters that mean
nothing.

Two variants of one file differ in everything that is not known, so what a command prints of both tells whether it
depended on that.
"""

from __future__ import annotations

import io
import random
from functools import lru_cache

from obsspec.world.shadow.facts import Known

EXACT_BYTES = 32_000  # of larger files only the size is as it was seen
MAX_BYTES = 1_000_000
LETTERS = "qwzxjvk"
WORD = 6
BLOCK = 2000
NOTHING = frozenset(
    {
        "d41d8cd98f00b204e9800998ecf8427e",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }
)


@lru_cache(maxsize=1024)
def filler(known: Known, seed: str, variant: int) -> bytes:
    """Deterministic in its arguments."""
    if known.size == 0 or any(digest in NOTHING for _, digest in known.sums):
        return b""
    random_ = random.Random(f"{seed}/{variant}")
    counts = dict(known.counts)
    size = known.size
    lines = counts.get("l", 1 + variant if size is None else max(1, size // 24))
    words = counts.get("w", max(1, lines) * (1 + variant))
    if size is None:
        size = (lines + words) * WORD + random_.randrange(1, 9)
    if size > EXACT_BYTES:
        block = _text(BLOCK, BLOCK // 40, BLOCK // 8, random_).encode()
        return (block * (size // len(block) + 1))[: min(size, MAX_BYTES)]
    return _text(size, lines, words, random_).encode()


def _text(size: int, lines: int, words: int, random_: random.Random) -> str:
    rows = max(1, lines)
    shares = [words // rows + (row < words % rows) for row in range(rows)]
    letters = max(words, size - lines - sum(max(0, share - 1) for share in shares))
    stream = _letters(letters, random_)
    lengths = iter([letters // max(1, words) + (word < letters % max(1, words)) for word in range(words)])
    text = "\n".join(" ".join(stream.read(next(lengths)) for _ in range(share)) for share in shares)
    return text + "\n" if lines else text


def _letters(count: int, random_: random.Random) -> io.StringIO:
    """Random up to some length, then the same again: large files are only large."""
    block = "".join(random_.choices(LETTERS, k=min(count, BLOCK)))
    return io.StringIO(block * (count // max(1, len(block)) + 1))
