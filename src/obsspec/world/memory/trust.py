"""How far each kind of guess is to be believed: Beta posteriors over its own hits and misses, from coarse to fine.

The estimate of a bucket is drawn towards that of the bucket above it: the source; with the features of the guess; for
one tool; for one class of calls. The last one notices what keeps failing (dates, process ids, random numbers) however
well the source does elsewhere.
"""

from __future__ import annotations

import math
from functools import lru_cache

from obsspec.world.memory.digests import digest
from obsspec.world.memory.store import Store

HIT, MISS = b"+", b"-"
_PULL = 3.0  # pseudo-observations with which a bucket is drawn to the one above it
_CLASS_PULL = 3.0
_STEPS = 1.5  # confidences are told apart in steps of 1/1.5 of log odds
_DECAY_AT = 400.0  # a bucket with more than this forgets half, so that it follows changes


class Trust:
    """Learns from every guess whose outcome is known, whether it was emitted or not."""

    def __init__(self, store: Store, space: bytes) -> None:
        self._store = store
        self._space = space

    def confidence(self, source: str, features: tuple[object, ...], tool: str, group: str, prior: float) -> float:
        coarse, fine, own, by_class = _buckets(self._space, source, features, tool, group)
        general = self._posterior(coarse, prior, 2.0)
        rate = self._posterior(own, self._posterior(fine, general, _PULL), _PULL)
        return rate if group == tool else self._posterior(by_class, rate, _CLASS_PULL)

    def record(self, source: str, features: tuple[object, ...], tool: str, group: str, hit: bool) -> None:
        for bucket in _buckets(self._space, source, features, tool, group):
            self._count(bucket, hit)

    def settled(self, source: str, tool: str, confidence: float) -> float:
        """The confidence of the guess that won over the others: winning by luck makes it too good."""
        coarse, own = _won(self._space, source, tool, _step(confidence))
        return self._posterior(own, self._posterior(coarse, confidence, _PULL), _PULL)

    def settle(self, source: str, tool: str, confidence: float, hit: bool) -> None:
        for bucket in _won(self._space, source, tool, _step(confidence)):
            self._count(bucket, hit)

    def _count(self, bucket: bytes, hit: bool) -> None:
        self._store.add(bucket, HIT if hit else MISS)
        page = self._store.page(bucket)
        hits, misses = page.count(HIT), page.count(MISS)
        if hits + misses > _DECAY_AT:
            self._store.add(bucket, HIT, -hits / 2)
            self._store.add(bucket, MISS, -misses / 2)

    def _posterior(self, bucket: bytes, above: float, pull: float) -> float:
        page = self._store.page(bucket)
        hits, misses = page.count(HIT), page.count(MISS)
        return (hits + pull * above) / (hits + misses + pull)


@lru_cache(maxsize=16384)
def _buckets(space: bytes, source: str, features: tuple[object, ...], tool: str, group: str) -> tuple[bytes, ...]:
    kind = repr(features)
    return (
        digest(space, "trust", source),
        digest(space, "trust", source, kind),
        digest(space, "trust", source, kind, tool),
        digest(space, "confusion", source, kind, group),
    )


@lru_cache(maxsize=4096)
def _won(space: bytes, source: str, tool: str, step: int) -> tuple[bytes, bytes]:
    return digest(space, "won", source, str(step)), digest(space, "won", source, str(step), tool)


def _step(confidence: float) -> int:
    return round(_logit(confidence) * _STEPS)


def _logit(p: float) -> float:
    p = min(max(p, 1e-4), 1 - 1e-4)
    return math.log(p / (1 - p))
