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

    A candidate at least as likely as `sure` is emitted as it comes; tentatively, if it takes the last place while an
    answer is awaited that is going to be more likely. That happens once, so it is replaced by the best there is when
    nothing better than that is awaited any more. The others are emitted when they are released, the most likely first,
    if they are at least as likely as `least`. After `close` nothing is emitted.
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
        self._awaited: dict[str, float] = {}  # by stage: how likely it is right
        self._best: dict[tuple[str, ...], Bid] = {}
        self._emitted: set[tuple[str, ...]] = set()  # those that were replaced included
        self._places = 0  # that are taken
        self._held: Bid | None = None  # what stands tentatively
        self._released = False
        self._closed = False
        self._full: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        """Nothing more can be emitted."""
        return self._places >= self.breadth and self._held is None

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

    def await_answer(self, stage: str, p: float) -> None:
        """The stage is going to say something that is right with probability `p`."""
        self._awaited[stage] = p

    def await_no_more(self, *stages: str) -> None:
        """These stages, or all, have said what they say, or have taken too long."""
        for stage in stages or tuple(self._awaited):
            self._awaited.pop(stage, None)
        if self._held is not None:
            self._say_all(self._sure)  # what was better, but not as good as what was awaited
        if self._held is not None and not self._is_awaited(self._held):
            self._held = None
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
            self._say_all(self._least if self._released else self._sure)

    def release(self) -> None:
        """Emits what there is, and from now on whatever comes."""
        self._released = True
        self.await_no_more()
        self._say_all(self._least)

    def close(self) -> None:
        self._closed = True

    def _say_all(self, least: float) -> None:
        """All that are so likely, the most likely first."""
        for bid in sorted(self._best.values(), key=lambda bid: -bid.p):
            if bid.p >= least:
                self._say(bid)

    def _is_awaited(self, bid: Bid) -> bool:
        """Something better than it, from another stage."""
        return any(p > bid.p for stage, p in self._awaited.items() if stage != bid.stage)

    def _say(self, bid: Bid) -> None:
        if self._closed or bid.texts in self._emitted or not self._take_place(bid):
            return
        self._emitted.add(bid.texts)
        self._emit(bid.stage, replace(bid.said, confidence=bid.p, tentative=self._held is not None))
        self._check_full()

    def _take_place(self, bid: Bid) -> bool:
        """Whether there is one: free, or of a less likely one that stands tentatively, if nothing better may come."""
        if self._places < self.breadth:
            self._places += 1
            self._held = bid if self._places == self.breadth and self._is_awaited(bid) else None
            return True
        if self._held is None or self._held.p >= bid.p or self._is_awaited(bid):
            return False
        self._held = None
        return True

    def _check_full(self) -> None:
        if self.is_full and self._full is not None:
            call, self._full = self._full, None
            call()
