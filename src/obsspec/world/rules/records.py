"""How often answers were right, by source and by the programs in them."""

from __future__ import annotations

from collections import Counter

_PRIOR = {"rules/known": (0.99, 20.0), "rules/silent": (0.9, 5.0), "rules/likely": (0.85, 5.0)}


class Records:
    """A Beta posterior for each source and program; a program's prior is what its source has earned so far."""

    def __init__(self) -> None:
        self._hits: Counter[tuple[str, str]] = Counter()
        self._total: Counter[tuple[str, str]] = Counter()

    def add(self, source: str, programs: tuple[str, ...], *, hit: bool) -> None:
        for name in {"", *programs}:
            self._total[source, name] += 1
            self._hits[source, name] += hit

    def confidence(self, source: str, programs: tuple[str, ...]) -> float:
        """The probability of being right: that of the program with the poorest record."""
        mean, weight = _PRIOR[source]
        general = self._posterior(source, "", mean, weight)
        return min((self._posterior(source, name, general, 4.0) for name in set(programs)), default=general)

    def _posterior(self, source: str, name: str, mean: float, weight: float) -> float:
        key = (source, name)
        return (mean * weight + self._hits[key]) / (weight + self._total[key])
