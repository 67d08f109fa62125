"""A figure of a published row with the simulated one beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """`what` of one `row` of a `table`, published and ours, in `unit`. `bound`: relative error allowed; 0: only shown.

    `se`: ours, of the difference to the sequential run on the same rollouts; 0 where that run is calibrated. `note`:
    what is calibrated or given, and what the model does not explain.
    """

    table: str
    row: str
    what: str
    published: float
    ours: float
    unit: str = ""
    bound: float = 0.0
    published_se: float = 0.0
    se: float = 0.0
    note: str = ""

    @property
    def error(self) -> float:
        """Relative to the published figure."""
        return self.ours / self.published - 1 if self.published else 0.0

    @property
    def good(self) -> bool:
        return not self.bound or abs(self.error) <= self.bound
