"""The stages of a cascade: a source with a name and a price, and what is remembered of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from obsspec.protocols import WorldModel
from obsspec.speculation.gate import Fuse
from obsspec.speculation.reliability import Reliability
from obsspec.values import Context


class Price(StrEnum):
    CHEAP = "cheap"  # always asked
    EXPENSIVE = "expensive"  # asked if the gate finds it worth its cost


@dataclass(frozen=True, slots=True)
class Stage:
    """A source. `name` is that of its predictions, or what comes before the "/" in them."""

    name: str
    model: WorldModel
    price: Price = Price.CHEAP


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a source is going to say will be right with probability `p`, and takes so many seconds."""

    p: float
    seconds: float


@runtime_checkable
class Foresees(Protocol):
    """A world model that can tell beforehand how good its answer will be, and when it comes."""

    def foresee(self, context: Context) -> Prospect | None:
        """None if it will say nothing, or can not tell. Never waits."""
        ...


@dataclass(slots=True)
class StageCounts:
    """What became of one stage. `said` counts candidates; those of turns that were committed are
    `compared`, emitted or not, and `right` if they met the truth."""

    asked: int = 0
    refused: int = 0
    said: int = 0
    emitted: int = 0
    compared: int = 0
    right: int = 0
    errors: int = 0
    learning_errors: int = 0


@dataclass(slots=True)
class CascadeMemory:
    """What the cascades of all rollouts share: how reliable the stages are, what they did, which are out of order."""

    reliability: Reliability = field(default_factory=Reliability)
    counts: dict[str, StageCounts] = field(default_factory=dict[str, StageCounts])
    fuses: dict[str, Fuse] = field(default_factory=dict[str, Fuse])

    def of(self, stage: str) -> StageCounts:
        return self.counts.setdefault(stage, StageCounts())

    def fuse(self, stage: str) -> Fuse:
        return self.fuses.setdefault(stage, Fuse())
