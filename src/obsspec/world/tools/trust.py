"""How often a hypothesis was right: Beta posteriors from coarse to fine classes, each the prior of the next."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Record:
    """Hits and misses, older ones forgotten once there are `memory` of them, so that a change shows."""

    hits: float = 0.0
    misses: float = 0.0

    def add(self, hit: bool, memory: float = 200.0) -> None:
        kept = min(1.0, memory / (1.0 + self.hits + self.misses))
        self.hits = self.hits * kept + hit
        self.misses = self.misses * kept + (not hit)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one hypothesis says: `text`, with the classes its record is kept by (coarse to fine).

    `source` names the hypothesis. `prior` is the probability that it is right before anything is known of these
    classes, worth `weight` observations. Without `evidence` the outcome counts for nothing (the same call was answered
    before).
    """

    text: str
    source: str
    classes: tuple[Hashable, ...]
    prior: float = 0.6
    weight: float = 2.0
    evidence: bool = True


@dataclass(slots=True)
class Trust:
    """The records of all hypotheses."""

    _records: dict[Hashable, Record] = field(default_factory=dict[Hashable, Record])

    def confidence(self, claim: Claim) -> float:
        """The posterior mean that the claim is right."""
        mean = claim.prior
        for key in claim.classes:
            record = self._records.get(key)
            if record is not None:
                total = record.hits + record.misses
                mean = (record.hits + claim.weight * mean) / (total + claim.weight)
        return mean

    def settle(self, claim: Claim, text: str) -> None:
        """Counts the claim as right or wrong, now that the answer is known."""
        for key in claim.classes if claim.evidence else ():
            self._records.setdefault(key, Record()).add(claim.text == text)
