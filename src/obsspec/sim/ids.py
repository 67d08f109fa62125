"""Token ids of simulated rollouts: as many as real ones would be, and cheap to make.

Most ids are filler. The last id of a prompt says where in which rollout it stands, that of a completion which turn it
is; both also say whether this is still the path that the rollout really takes. Off that path, after a wrong prediction,
ids are hashes: what is sampled there is as random as it is there for a real policy.
"""

from __future__ import annotations

from enum import IntEnum
from zlib import crc32

from obsspec.values import Tokens

LEVELS = 4096  # turns that a rollout may have
FILLER = 7
_BITS = 3
_MASK = (1 << 64) - 1


class Mark(IntEnum):
    """What an id stands for: its lowest bits."""

    START = 1  # the first id of a rollout's prompts
    PLACE = 2  # the last id of a prompt on the path
    LOST_PLACE = 3  # the same off the path
    CALL = 4  # the last id of a turn that calls a tool
    ANSWER = 5  # the last id of a turn that ends the rollout
    LOST_CALL = 6  # the last id of a turn off the path


def make(mark: Mark, number: int) -> int:
    return number << _BITS | mark


def mark(token_id: int) -> Mark:
    return Mark(token_id & (1 << _BITS) - 1)


def number(token_id: int) -> int:
    return token_id >> _BITS


def place(rollout: int, level: int) -> int:
    """The end of the prompt of turn `level`."""
    return make(Mark.PLACE, rollout * LEVELS + level)


def at(token_id: int) -> tuple[int, int]:
    """(rollout, level) of an id on the path."""
    return divmod(number(token_id), LEVELS)


def filled(count: int, last: int) -> Tokens:
    """`count` ids, the last one given."""
    return (*_filler(count)[: count - 1], last)


_long = [(FILLER,) * 4096]


def _filler(count: int) -> Tokens:
    if len(_long[0]) < count:
        _long[0] = (FILLER,) * (2 * count)
    return _long[0]


def mix(*values: int) -> int:
    """64 well-mixed bits of some integers (the finaliser of SplitMix64)."""
    x = 0x9E3779B97F4A7C15
    for value in values:
        x = (x ^ value & _MASK) * 0xBF58476D1CE4E5B9 & _MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
        x ^= x >> 31
    return x


def chance(*values: int) -> float:
    """A number in [0, 1), the same for the same integers."""
    return (mix(*values) >> 11) * 2.0**-53


def digest(text: str) -> int:
    return crc32(text.encode())
