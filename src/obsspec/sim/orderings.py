"""Whether simulated rows stand in the published order, as far as that order is more than noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from obsspec.sim.results import Result

LATENCIES = ("depth", "breadth", "world model size", "co-training", "tir")
CLEAR = 2.0  # standard errors of a difference from which on it counts


@dataclass(frozen=True, slots=True)
class Ordering:
    """Of the rows of one table. `clear`: pairs that are clearly ordered as published; `right`: those of them that are
    so here. `unclear`: the largest difference here among the other pairs, in percent; the published one beside it."""

    table: str
    rows: int
    clear: int
    right: int
    unclear: float
    published_unclear: float

    @property
    def good(self) -> bool:
        return self.right == self.clear


def orderings(results: Sequence[Result]) -> list[Ordering]:
    """Of agent latencies within a table; of the sandboxes, of the reductions, each pair counting as clear."""
    latencies = [result for result in results if result.what == "agent latency" and result.table in LATENCIES]
    found = [_ordering(table, [r for r in latencies if r.table == table]) for table in LATENCIES]
    reductions = [r for r in results if r.table == "sandboxes" and r.what == "reduction"]
    pairs = list(combinations(reductions, 2))
    right = sum((a.published - b.published) * (a.ours - b.ours) > 0 for a, b in pairs)
    found.append(Ordering("sandboxes", len(reductions), len(pairs), right, 0.0, 0.0))
    return [ordering for ordering in found if ordering.rows > 1]


def _ordering(table: str, rows: Sequence[Result]) -> Ordering:
    clear = right = 0
    unclear = published_unclear = 0.0
    for a, b in combinations(rows, 2):
        gap, ours = a.published - b.published, a.ours - b.ours
        if abs(gap) > CLEAR * math.hypot(a.published_se, b.published_se):
            clear += 1
            right += gap * ours > 0
        else:
            unclear = max(unclear, 100 * abs(ours) / b.ours)
            published_unclear = max(published_unclear, 100 * abs(gap) / b.published)
    return Ordering(table, len(rows), clear, right, unclear, published_unclear)
