"""A guess of one observation: the text, which memory it comes from, and what tells good guesses of its kind apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guess:
    """`text` has the counter of its tool taken out. `features` and `prior` are for `Trust`."""

    source: str
    text: str
    features: tuple[object, ...]
    prior: float
    certain: bool = False  # this very call was seen in this very state, so looser guesses count for nothing


def few(count: float) -> int:
    """Counts that matter apart: 0, 1, 2, 3-4, 5-9, 10 and more."""
    for step, limit in enumerate((1, 2, 3, 5, 10)):
        if count < limit:
            return step
    return 5


def share(part: float, whole: float) -> int:
    """Shares that matter apart."""
    rate = part / whole if whole > 0 else 0.0
    for step, limit in enumerate((0.4, 0.6, 0.8, 0.9, 0.97, 1.0)):
        if rate < limit:
            return step
    return 6
