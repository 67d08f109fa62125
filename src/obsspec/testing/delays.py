"""Seconds that fakes take. A delay decides when something happens, never what: results must not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Delay = Callable[[], float]
Seed = int | float | str


def constant(seconds: float) -> Delay:
    return lambda: seconds


def uniform(seed: Seed, low: float, high: float) -> Delay:
    """A fresh draw from [low, high) each time."""
    random = Random(seed)
    return lambda: random.uniform(low, high)


def choice(seed: Seed, seconds: Sequence[float]) -> Delay:
    """One of a few values each time: multiples of one tick make events fall on the same instant, as races do."""
    random = Random(seed)
    return lambda: random.choice(seconds)
