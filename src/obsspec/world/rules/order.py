"""The order in which programs sort names and lines: by bytes, or as a language does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

from obsspec.world.rules.undetermined import UndeterminedError


class Order(StrEnum):
    """BYTES: the order of code points. LANGUAGE: letters first, then case and punctuation."""

    BYTES = "bytes"
    LANGUAGE = "language"


def agreed(low: str, high: str) -> bool:
    """Whether every usual language sorts these two as their bytes do."""
    if low == high or not (low.isascii() and high.isascii()):
        return low == high
    return low < high and _letters(low) < _letters(high)


def check(ordered: Sequence[str], order: Order | None) -> None:
    """Raises `UndeterminedError` if these, sorted by bytes, may be sorted in another way."""
    if order is not Order.BYTES and not all(agreed(low, high) for low, high in pairwise(ordered)):
        raise UndeterminedError


def listed(names: Iterable[str], order: Order | None) -> list[str]:
    """The names sorted. Raises `UndeterminedError` where the order is not sure."""
    ordered = sorted(names)
    check(ordered, order)
    return ordered


def observed(lines: Sequence[str]) -> Order | None:
    """Which order a sorted list shows; None if it shows neither or is the same in both."""
    if len(set(lines)) < len(lines) or not all(line.isascii() for line in lines):
        return None
    if list(lines) == sorted(lines):
        return None if all(agreed(low, high) for low, high in pairwise(lines)) else Order.BYTES
    letters = [_letters(line) for line in lines]
    return Order.LANGUAGE if letters == sorted(letters) else None


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
