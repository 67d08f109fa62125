"""A page: all counters under one key, as they are held in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.world.memory.database import PAGE_CELLS, Cell


@dataclass(slots=True, eq=False)
class Page:
    """The counters under one key, their sum, and the name of the largest one (of equal ones, the latest).

    `changes` counts what happened to it, for those who keep something derived.
    """

    cells: dict[bytes, Cell]
    version: int = 0
    loaded_s: float = 0.0
    changes: int = 0
    derived: object = None
    total: float = field(init=False)
    best: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        self._sum_up()

    def _sum_up(self) -> None:
        self.total = sum(cell[0] for cell in self.cells.values())
        self.best = max(self.cells, key=lambda name: self.cells[name], default=None)

    def increase(self, name: bytes, amount: float, now: float) -> None:
        increase(self.cells, name, amount, now)
        self.changes += 1
        self.total += amount
        if self.best is None or self.cells[name][0] >= self.cells[self.best][0]:
            self.best = name
        if len(self.cells) > 2 * PAGE_CELLS:
            self._shorten()

    def _shorten(self) -> None:
        recent = sorted(self.cells.items(), key=lambda item: item[1][1], reverse=True)[:PAGE_CELLS]
        self.cells = dict(recent)
        self._sum_up()

    def count(self, name: bytes) -> float:
        cell = self.cells.get(name)
        return cell[0] if cell else 0.0


def increase(cells: dict[bytes, Cell], name: bytes, amount: float, now: float) -> None:
    count, last = cells.get(name, (0.0, 0.0))
    cells[name] = (count + amount, max(last, now))
