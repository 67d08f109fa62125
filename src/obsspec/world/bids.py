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

    A candidate at least as likely as `sure` is emitted as it comes, unless there is room for one only and an answer is
    awaited that is better: by so much that this times `hides_s` is more than the seconds it takes. The others are
    emitted when they are released, the most likely first, if they are at least as likely as `least`. After `close`
    nothing is emitted.
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
        hides_s: float,
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
        self._hides_s = hides_s
        self._awaited: dict[str, tuple[float, float]] = {}  # by stage: how likely it is right, and what it takes
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

    def await_answer(self, stage: str, p: float, seconds: float) -> None:
        """The stage is going to say something that is right with probability `p`, which takes so many seconds."""
        self._awaited[stage] = p, seconds

    def awaits(self, stage: str) -> bool:
        return stage in self._awaited

    def await_no_more(self, *stages: str) -> None:
        """These stages, or all, have said what they say, or have taken too long."""
        if self._awaited:
            for stage in stages or tuple(self._awaited):
                self._awaited.pop(stage, None)
            self._say_all(self._sure)

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
            self._say_all(self._least if self._released else self._sure)

    def release(self) -> None:
        """Emits what there is, and from now on whatever comes."""
        self._released = True
        self._awaited.clear()
        self._say_all(self._least)

    def close(self) -> None:
        self._closed = True

    def _say_all(self, least: float) -> None:
        """All that are so likely and need not wait, the most likely first."""
        for bid in sorted(self._best.values(), key=lambda bid: -bid.p):
            if bid.p >= least and not self._waits(bid):
                self._say(bid)

    def _waits(self, bid: Bid) -> bool:
        if self.breadth - len(self._emitted) > 1:
            return False
        return any((p - bid.p) * self._hides_s > seconds for p, seconds in self._awaited.values())

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
