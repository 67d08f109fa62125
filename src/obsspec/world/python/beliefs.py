"""What is learnt online: Beta posteriors that share what they know, votes, and duels. All forget slowly."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

CLASSES = 50_000  # about the most that are kept; of more, the oldest special ones are forgotten
MEMORY = 200.0  # observations; older ones fade
SHARED = 2.0  # how many observations the more general class is worth

Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True)
class _Count:
    right: float = 0.0
    all: float = 0.0

    def add(self, right: bool) -> None:
        keep = 1 - 1 / MEMORY
        self.right = self.right * keep + right
        self.all = self.all * keep + 1


@dataclass(slots=True)
class Reliability:
    """P(right) by class, from the general to the special. A class begins where the one above it stands."""

    prior: float = 0.5
    _counts: dict[tuple[Hashable, ...], _Count] = field(default_factory=lambda: {})

    def mean(self, path: Sequence[Hashable]) -> float:
        """The posterior mean of the class `path`, whose prefixes are the classes above it."""
        mean = self.prior
        for end in range(len(path) + 1):
            count = self._counts.get(tuple(path[:end]))
            if count is not None:
                mean = (count.right + SHARED * mean) / (count.all + SHARED)
        return mean

    def known(self, path: Sequence[Hashable]) -> bool:
        """Something was observed of just this class."""
        return tuple(path) in self._counts

    def add(self, path: Sequence[Hashable], *, right: bool) -> None:
        """For the class and those above it, less the most general one: that is about what was said, `add_said`."""
        for end in range(1, len(path) + 1):
            self._counts.setdefault(tuple(path[:end]), _Count()).add(right)
        if len(self._counts) > CLASSES:
            del self._counts[next(old for old in self._counts if len(old) == len(path))]

    def add_said(self, *, right: bool) -> None:
        """What came of the best of several guesses; the others do not speak against it."""
        self._counts.setdefault((), _Count()).add(right)


@dataclass(slots=True)
class Votes(Generic[Item]):
    """The item that was seen most, lately: each vote counts `keep` times the one after it."""

    keep: float = 0.9
    _weights: dict[Item, float] = field(default_factory=lambda: {})

    def add(self, item: Item) -> None:
        self._weights = {other: weight * self.keep for other, weight in self._weights.items() if weight > 0.01}
        self._weights[item] = self._weights.get(item, 0.0) + 1.0

    def drop(self, item: Item) -> None:
        """It was seen to be wrong."""
        self._weights.pop(item, None)

    def best(self, least: float = 0.0) -> Item | None:
        """None if nothing has more than the weight `least`."""
        item = max(self._weights, key=self._weights.__getitem__, default=None)
        return item if item is not None and self._weights[item] > least else None


@dataclass(slots=True)
class Duels(Generic[Item]):
    """Which of several ways is right where they differ.

    A way that lost clearly is not tried until the winner fails; nor is any other beside one that is right for long.
    """

    enough: float = 3.0
    settled: int = 20  # tries
    _wins: dict[tuple[Item, Item], float] = field(default_factory=lambda: {})
    _lately: dict[Item, float] = field(default_factory=lambda: {})
    _tries: dict[Item, int] = field(default_factory=lambda: {})

    def add(self, right: dict[Item, bool]) -> None:
        """What came of all ways that were tried at once."""
        for item, was in right.items():
            self._tries[item] = self._tries.get(item, 0) + 1
            self._lately[item] = self._lately.get(item, 0.5) * 0.9 + 0.1 * was
            for other, also in right.items():
                if was and not also:
                    self._wins[item, other] = self._wins.get((item, other), 0.0) * (1 - 1 / MEMORY) + 1.0

    def alive(self, items: Sequence[Item]) -> list[Item]:
        """The ways worth trying, the best first."""
        order = sorted(items, key=lambda item: -self._score(item, items))
        best = order[0]
        lately = self._lately.get(best, 0.5)
        if lately < 0.25:
            return order
        if lately > 0.85 and self._tries[best] >= self.settled:
            return [best]
        return [item for item in order if not self._beaten(item, items)]

    def _score(self, item: Item, items: Sequence[Item]) -> float:
        return sum(self._wins.get((item, other), 0.0) - self._wins.get((other, item), 0.0) for other in items)

    def _beaten(self, item: Item, items: Sequence[Item]) -> bool:
        return any(
            self._wins.get((other, item), 0.0) >= self.enough + 3.0 * self._wins.get((item, other), 0.0)
            for other in items
        )
