"""How often a shadow run is right, by what can be seen of it: Beta posteriors from coarse to fine, each the prior of
the next.

    p0 by what is covered,  p(i+1) = (right + w p(i)) / (seen + w)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from obsspec.world.shadow.coverage import Coverage
from obsspec.world.shadow.images import Link
from obsspec.world.shadow.kinds import OutputKind

WEIGHT = 4.0
MEMORY = 120.0  # outcomes that a posterior is worth at most
ENTRIES = 8192


class Changes(StrEnum):
    """What commands before this one have done, and whether it is known."""

    NONE = "none"
    REPLAYED = "replayed"  # they may have changed files, and were run again
    SHELL = "shell"  # variables or the like may have changed: those are not followed
    REFUTED = "refuted"  # what one of them printed was not what it printed here


@dataclass(frozen=True, slots=True)
class Signs:
    """What can be seen of one run before its outcome is known.

    `steady`: both variants of what is not known print the same. `coverage`: of the files it looks at. `family`:
    programs of the command. `place`: the files it names.
    """

    kind: OutputKind
    steady: bool
    coverage: Coverage
    link: Link
    changed: Changes
    family: str
    place: str

    def cells(self) -> tuple[tuple[object, ...], ...]:
        base = (self.kind, self.steady, self.coverage, self._doubtful)
        return (
            ("kind", self.kind, self.steady),
            ("coverage", *base),
            ("link", *base, self.link, self.changed),
            ("family", *base, self.family),
            ("place", *base, self.family, self.link, self.place),
        )

    @property
    def prior(self) -> float:
        """Before any outcome."""
        if self.kind is OutputKind.SYNTAX:
            return 0.7
        if self.kind is OutputKind.MISSING or self._doubtful:
            return 0.3  # what is not here may well be there
        return 0.6 if self.steady and self.coverage in (Coverage.COMPLETE, Coverage.NOTHING) else 0.3

    @property
    def _doubtful(self) -> bool:
        return self.changed in (Changes.SHELL, Changes.REFUTED)


class Trust:
    """Pure state, shared by all rollouts."""

    def __init__(self) -> None:
        self._cells: dict[tuple[object, ...], list[float]] = {}

    def mean(self, signs: Signs) -> float:
        p = signs.prior
        for cell in signs.cells():
            right, seen = self._cells.get(cell, (0.0, 0.0))
            p = (right + WEIGHT * p) / (seen + WEIGHT)
        return p

    def record(self, signs: Signs, right: bool) -> None:
        for cell in signs.cells():
            found = self._cells.get(cell)
            if found is None:
                if len(self._cells) >= ENTRIES:
                    del self._cells[next(iter(self._cells))]
                found = self._cells[cell] = [0.0, 0.0]
            fade = min(1.0, (MEMORY - 1) / found[1]) if found[1] else 1.0
            found[0] = found[0] * fade + right
            found[1] = found[1] * fade + 1
