"""How often a source is right: Beta posteriors by source, stated confidence and command class, each the prior of the
next.

    p0 = the confidence that the source states
    p1 = (right + w0 p0) / (seen + w0)      all that this source ever said
    p2 = (right + w1 p1) / (seen + w1)      ... with such a confidence
    p3 = (right + w2 p2) / (seen + w2)      ... of this command class

Evidence is bounded: beyond `memory` outcomes the old ones fade, so that a posterior follows drift. A new source starts
with what it claims; a few outcomes of one class, or some more of any, overrule that.
"""

from __future__ import annotations

from bisect import bisect_right

WEIGHTS = (4.0, 3.0, 3.0)  # how many outcomes each prior is worth
BUCKETS = (0.5, 0.8, 0.95)  # stated confidences that are remembered together
ENTRIES = 4096  # posteriors kept; the oldest is forgotten first


class Reliability:
    """Pure and shared: one object may serve all rollouts. `memory`: outcomes that a posterior is worth at most."""

    def __init__(self, memory: float = 50.0) -> None:
        self._memory = memory
        self._posteriors: dict[tuple[str, ...], list[float]] = {}  # [right, seen]

    def __len__(self) -> int:
        return len(self._posteriors)

    def mean(self, source: str, kind: str, confidence: float) -> float:
        """P(match) of a candidate of this source for a turn of this class; strictly between 0 and 1."""
        p = min(0.99, max(0.01, confidence))
        for weight, key in zip(WEIGHTS, _keys(source, kind, confidence), strict=True):
            found = self._posteriors.get(key)
            if found is not None:
                p = (found[0] + weight * p) / (found[1] + weight)
        return p

    def record(self, source: str, kind: str, confidence: float, matched: bool) -> None:
        """One candidate, whether it was used or not, met the real observation."""
        for key in _keys(source, kind, confidence):
            found = self._posteriors.get(key)
            if found is None:
                if len(self._posteriors) >= ENTRIES:
                    del self._posteriors[next(iter(self._posteriors))]
                found = self._posteriors[key] = [0.0, 0.0]
            fade = min(1.0, (self._memory - 1) / found[1]) if found[1] else 1.0
            found[0] = found[0] * fade + matched
            found[1] = found[1] * fade + 1


def _keys(source: str, kind: str, confidence: float) -> tuple[tuple[str, ...], ...]:
    bucket = str(bisect_right(BUCKETS, confidence))
    return (source,), (source, bucket), (source, bucket, kind)
