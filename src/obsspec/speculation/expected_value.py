"""The gate that weighs: work starts early when what it is expected to hide is worth more than what it costs.

    gain = P x E[min(G, T - w)]                 without guards
    gain = P x E[min(G + T', T - w)]            with guards: the next call's wait, T', begins when the branch ends
    cost = taken x E[min(G, T - w)]             seconds that the others at the engine lose meanwhile
         + price x (1 - P) x E[min(G, T - w)]   engine time thrown away, however idle the engine is
         + (1 - P) x token time x 2 + 2 ms      what a rollback and a start cost

With guards T is the longest of the waits that go on beside each other, without them their sum. P is a posterior by
source and command class; G, T, w and the load are learnt from what the sessions measure. A class that is closed opens
at gain > 1.25 cost and one that is open closes at gain < 0.8 cost: load or luck near the threshold does not make it
flap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from obsspec.speculation.decisions import (
    Ask,
    Decision,
    GenerationEnded,
    GenerationStarted,
    Look,
    Predicted,
    Seen,
    Settled,
    Start,
    ToolEnded,
    What,
    Why,
)
from obsspec.speculation.estimates import ENOUGH, Estimates, later
from obsspec.speculation.gate import Breaker
from obsspec.speculation.load import LoadModel
from obsspec.speculation.reliability import Reliability

STATES = 4096  # open or closed classes kept; the oldest is forgotten first
RAREST = 64  # a refused expensive source is tried at the 2nd, 4th, 8th ... refusal, then at every one of so many


@dataclass(frozen=True, slots=True)
class GateSettings:
    """`price`: seconds of latency that a wasted second at an idle engine is worth. `rollback_tokens`: how long a
    discarded request still holds the engine up. `start_s`: what any start costs. `opens`, `closes`: of gain / cost.

    `slots`: more requests than these would queue (0: no limit). `shared_engine`: expensive sources use the policy's.
    `guarded`: calls of unverified turns are sent ahead.
    """

    price: float = 0.2
    rollback_tokens: float = 2.0
    start_s: float = 0.002
    opens: float = 1.25
    closes: float = 0.8
    slots: int = 0
    shared_engine: bool = True
    guarded: bool = False


class ExpectedValueGate:
    """One for all sessions that share an engine. `load`: the engine's own count of requests in flight, if it has one.

    A world model that fails, or is late, all the time is not asked for a while: see `Breaker`.
    """

    def __init__(
        self,
        settings: GateSettings | None = None,
        *,
        load: Callable[[], int] | None = None,
        reliability: Reliability | None = None,
        failures: int = 5,
        pause: int = 50,
    ) -> None:
        self._settings = settings or GateSettings()
        self._breaker = Breaker(failures, pause)
        self._open: dict[tuple[str, str, int], bool] = {}
        self._refusals: dict[str, int] = {}
        self.reliability = reliability or Reliability()
        self.estimates = Estimates()
        self.load = LoadModel(load)
        self.flips = 0  # how often an open class closed, or a closed one opened

    def tools_take(self, seconds: float) -> bool:
        """Do tools take longer than that, as far as is known? Yes, as long as few were seen."""
        seen = self.estimates.tool_s.every
        return seen.count < ENOUGH or seen.mean > seconds

    # Decisions --------------------------------------------------------------------------------------------------

    def predicts(self, look: Look) -> Decision:
        """Always, so that what would have matched is learnt while nothing may start; unless the breaker is open."""
        return self._breaker.predicts(look)

    def starts(self, start: Start) -> Decision:
        kind = start.kinds[-1]
        own = self.reliability.mean(start.source, kind, start.confidence)
        p = start.chain * own
        load = self.load.sample()
        hidden, busy = self._hidden(start.kinds, start.elapsed_s)
        gain, cost = p * hidden, self._cost(p, busy, load)
        key = (kind, start.source, len(start.kinds))
        allowed = self._is_open(key, gain, cost)
        why = Why.WORTH if allowed else Why.NOT_WORTH
        if allowed and 0 < self._settings.slots <= self.load.in_flight - start.frees:
            allowed, why = False, Why.FULL
        return Decision(What.START, start.level, kind, start.source, allowed, why, p, gain, cost, load)

    def asks(self, ask: Ask) -> Decision:
        load = self.load.sample()
        kinds = (ask.kind,) * (1 + ask.depth)
        hidden, busy = self._hidden(kinds, ask.elapsed_s, self.estimates.prediction_s(ask.source).points)
        if ask.beside:
            p = ask.p * (1 - ask.have)
            gain = p * hidden
        else:
            p = ask.p
            at_once, _ = self._hidden(kinds, ask.elapsed_s)
            gain = p * hidden - ask.have * at_once
        cost = self._cost(p, busy, load) + self._asking_cost(ask.source, load)
        allowed = self._is_open((ask.kind, f"ask {ask.source}", ask.depth), gain, cost)
        why = Why.WORTH if allowed else Why.NOT_WORTH
        may_explore = ask.beside or not ask.have  # nothing is given up for it
        if not allowed and may_explore and self._explores(ask.source):
            allowed, why = True, Why.EXPLORE
        return Decision(What.ASK, ask.level, ask.kind, ask.source, allowed, why, p, gain, cost, load)

    def _hidden(
        self, kinds: tuple[str, ...], elapsed_s: float, waits: tuple[float, ...] = (0.0,)
    ) -> tuple[float, float]:
        """What a branch below these turns hides if it is right, and how long it keeps the engine busy until then."""
        estimates, guarded = self.estimates, self._settings.guarded
        left = later(estimates.left_s(kinds, elapsed_s, guarded=guarded), waits)
        busy = estimates.hidden_s(left)
        return (estimates.hidden_s(left, estimates.then_s(kinds)) if guarded else busy), busy

    def _cost(self, p: float, busy_s: float, load: float) -> float:
        settings = self._settings
        wasted = settings.price * busy_s + settings.rollback_tokens * self.load.token_s(load)
        return self.load.taken(load) * busy_s + (1 - p) * wasted + settings.start_s

    def _asking_cost(self, source: str, load: float) -> float:
        """Of the source's own tokens: never used for anything else, so wasted, if in a good cause."""
        if not self._settings.shared_engine:
            return 0.0
        return (self.load.taken(load) + self._settings.price) * self.estimates.prediction_s(source).mean

    def _is_open(self, key: tuple[str, str, int], gain: float, cost: float) -> bool:
        was = self._open.get(key)
        threshold = 1.0 if was is None else self._settings.closes if was else self._settings.opens
        now = gain > threshold * cost
        if was is None and len(self._open) >= STATES:
            del self._open[next(iter(self._open))]
        self._open[key] = now
        self.flips += was is not None and was is not now
        return now

    def _explores(self, source: str) -> bool:
        refused = self._refusals[source] = self._refusals.get(source, 0) + 1
        if refused >= RAREST:
            return refused % RAREST == 0
        return refused > 1 and refused & (refused - 1) == 0

    # What happened ----------------------------------------------------------------------------------------------

    def saw(self, seen: Seen) -> None:
        match seen:
            case GenerationStarted():
                self.load.started(seen.ticket, seen.now_s)
            case GenerationEnded():
                self._breaker.saw(seen)
                seconds = self.load.ended(seen.ticket, seen.now_s, seen.tokens)
                if seen.finished:
                    self.estimates.generated(seconds)
            case ToolEnded():
                self.estimates.tool_ran(seen.kind, seen.seconds)
            case Predicted():
                self.estimates.predicted(seen.source, seen.seconds, late=seen.late)
            case Settled():
                self._breaker.saw(seen)
                for said in seen.said:
                    if said.matched is not None:
                        self.reliability.record(said.source, seen.kind, said.confidence, said.matched)
