"""The candidates of one turn as they come in from the stages of a cascade: which to emit, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from obsspec.values import Prediction

MOST = 64  # candidates of one turn that are remembered


@dataclass(frozen=True, slots=True)
class Bid:
    """What a stage said, and how likely that is right as far as is known."""

    stage: str
    said: Prediction
    texts: tuple[str, ...]
    p: float


class Bids:
    """Each distinct candidate is emitted at most once, at most `breadth` of them, calibrated.

    A candidate at least as likely as `sure` is emitted as it comes; the others when they are released, the most likely
    first, if they are at least as likely as `least`. After `close` nothing is emitted.
    """

    def __init__(
        self,
        kind: str,
        calls: int,
        breadth: int,
        calibrate: Callable[[Prediction], float],
        emit: Callable[[str, Prediction], None],
        sure: float,
        least: float,
    ) -> None:
        self.kind = kind
        self.breadth = breadth
        self.all: list[Bid] = []
        self.answered: list[str] = []  # expensive stages that were asked and came to an end
        self._calls = calls
        self._calibrate = calibrate
        self._emit = emit
        self._sure = sure
        self._least = least
        self._best: dict[tuple[str, ...], Bid] = {}
        self._emitted: dict[tuple[str, ...], float] = {}
        self._released = False
        self._closed = False
        self._full: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        return len(self._emitted) >= self.breadth

    @property
    def is_sure(self) -> bool:
        return self.best >= self._sure

    @property
    def best(self) -> float:
        """How likely the best candidate is that may be emitted, or was; 0 if there is none."""
        best = max((bid.p for bid in self._best.values()), default=0.0)
        return best if best >= self._least else 0.0

    def when_full(self, call: Callable[[], None]) -> None:
        """Calls it once, as soon as no more can be emitted; now, if that is so already."""
        self._full = call
        self._check_full()

    def add(self, stage: str, said: Prediction) -> None:
        """A stage said something; later than `close`, or with a wrong number of observations, it is ignored."""
        if self._closed or len(said.observations) != self._calls or len(self.all) >= MOST:
            return
        bid = Bid(stage, said, tuple(o.text for o in said.observations), self._calibrate(said))
        self.all.append(bid)
        known = self._best.get(bid.texts)
        if known is None or known.p < bid.p:
            self._best[bid.texts] = bid
        if bid.p >= self._sure or (self._released and bid.p >= self._least):
            self._say(bid)

    def release(self) -> None:
        """Emits what there is, and from now on whatever comes."""
        self._released = True
        for bid in sorted(self._best.values(), key=lambda bid: -bid.p):
            if bid.p >= self._least:
                self._say(bid)

    def close(self) -> None:
        self._closed = True

    def _say(self, bid: Bid) -> None:
        if self._closed or self.is_full or bid.texts in self._emitted:
            return
        self._emitted[bid.texts] = bid.p
        self._emit(bid.stage, replace(bid.said, confidence=bid.p))
        self._check_full()

    def _check_full(self) -> None:
        if self.is_full and self._full is not None:
            call, self._full = self._full, None
            call()
