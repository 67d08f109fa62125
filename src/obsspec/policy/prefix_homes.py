"""Which replica holds which prefix, as far as we have sent it there: pure.

A sequence is known by the hashes of its beginnings, one for each block of tokens, each made of the hash before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from obsspec.values import Tokens

BLOCK = 64  # tokens: shorter common beginnings are not worth staying for
KEPT = 1 << 16  # beginnings that are remembered; the one that was used least recently goes first


class PrefixHomes:
    def __init__(self) -> None:
        self._homes: OrderedDict[int, frozenset[int]] = OrderedDict()

    def add(self, tokens: Tokens, replica: int) -> None:
        """The replica has read or sampled this."""
        for beginning in _beginnings(tokens):
            self._homes[beginning] = self._homes.pop(beginning, frozenset()) | {replica}
        while len(self._homes) > KEPT:
            self._homes.popitem(last=False)

    def find(self, tokens: Tokens) -> tuple[frozenset[int], int]:
        """The replicas that hold the longest beginning that any does, and its length in tokens, in whole blocks."""
        found: frozenset[int] = frozenset()
        length = 0
        for beginning in _beginnings(tokens):
            homes = self._homes.get(beginning)
            if homes is None:
                break
            found, length = homes, length + BLOCK
        return found, length


def _beginnings(tokens: Tokens) -> Iterator[int]:
    beginning = 0
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        beginning = hash((beginning, tokens[end - BLOCK : end]))
        yield beginning
