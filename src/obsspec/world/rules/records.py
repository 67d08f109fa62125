"""How often answers were right, by source and by the programs in them."""

from __future__ import annotations

from collections import Counter

_PRIOR = {"rules/known": (0.99, 20.0), "rules/silent": (0.9, 8.0), "rules/likely": (0.85, 8.0)}


_WEIGHT = 4.0
_SAY = 2  # how many answers of one program count for what is thought of others


class Records:
    """A Beta posterior for each source and program; a program's prior is what all of its source have earned."""

    def __init__(self) -> None:
        self._hits: Counter[tuple[str, str]] = Counter()
        self._total: Counter[tuple[str, str]] = Counter()

    def add(self, source: str, programs: tuple[str, ...], *, hit: bool) -> None:
        for name in set(programs):
            self._total[source, name] += 1
            self._hits[source, name] += hit

    def confidence(self, source: str, programs: tuple[str, ...]) -> float:
        """The probability of being right: that of the program with the poorest record."""
        general = self._general(source)
        return min((self._posterior(source, name, general) for name in set(programs)), default=general)

    def _general(self, source: str) -> float:
        mean, weight = _PRIOR[source]
        right = mean * weight
        for key, total in self._total.items():
            if key[0] == source and key[1].isalnum():  # circumstances count beside programs, not among them
                say = min(total, _SAY)
                weight += say
                right += say * self._hits[key] / total
        return right / weight

    def _posterior(self, source: str, name: str, general: float) -> float:
        key = (source, name)
        return (general * _WEIGHT + self._hits[key]) / (_WEIGHT + self._total[key])
