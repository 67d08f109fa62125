"""Whether to try. The gate never changes what is sampled, only whether work starts early."""

from __future__ import annotations

from typing import Protocol

from obsspec.speculation.decisions import Ask, Decision, GenerationEnded, Look, Seen, Settled, Start, What, Why
from obsspec.values import Outcome

NEAR_S = 2.0  # a failure so soon after a cancellation is taken to come from it


class Gate(Protocol):
    """One gate may serve many sessions on one event loop. Pure: it reads no clock and is told what happened."""

    def predicts(self, look: Look) -> Decision:
        """May the observation of this turn be predicted now?"""
        ...

    def starts(self, start: Start) -> Decision:
        """May this candidate start a generation now? If not, it is still compared with the real observation."""
        ...

    def asks(self, ask: Ask) -> Decision:
        """Is it worth asking this expensive source now?"""
        ...

    def saw(self, seen: Seen) -> None:
        """Learn from what happened."""
        ...


class OpenGate:
    """Always tries."""

    def predicts(self, look: Look) -> Decision:
        return Decision(What.PREDICT, look.level, look.kind, "", allowed=True, why=Why.OPEN)

    def starts(self, start: Start) -> Decision:
        p = start.chain * start.confidence
        return Decision(What.START, start.level, start.kinds[-1], start.source, allowed=True, why=Why.OPEN, p=p)

    def asks(self, ask: Ask) -> Decision:
        return Decision(What.ASK, ask.level, ask.kind, ask.source, allowed=True, why=Why.OPEN, p=ask.p)

    def saw(self, seen: Seen) -> None:
        return None


class Fuse:
    """Blows after `failures` in a row; then refuses `pause` times, and tries again."""

    def __init__(self, failures: int = 5, pause: int = 50) -> None:
        self._limit = failures
        self._pause = pause
        self._in_a_row = 0
        self._refusals_left = 0

    def allows(self) -> bool:
        if self._refusals_left == 0:
            return True
        self._refusals_left -= 1
        return False

    def record(self, *, failed: bool) -> None:
        self._in_a_row = self._in_a_row + 1 if failed else 0
        if self._in_a_row >= self._limit:
            self._in_a_row = 0
            self._refusals_left = self._pause


class CancelWatch:
    """Whether the engine bears that requests are cancelled: blows when others fail soon after, time after time."""

    def __init__(self, failures: int, pause: int) -> None:
        self._fuse = Fuse(failures, pause)
        self._cancelled_s: float | None = None  # the first of those that nothing is known of yet

    def allows(self) -> bool:
        return self._fuse.allows()

    def saw(self, ended: GenerationEnded) -> None:
        since_s = None if self._cancelled_s is None else ended.now_s - self._cancelled_s
        if since_s is not None and (ended.failed or since_s > NEAR_S):
            self._fuse.record(failed=since_s <= NEAR_S)
            self._cancelled_s = None
        if self._cancelled_s is None and not (ended.finished or ended.failed):
            self._cancelled_s = ended.now_s


class Breaker:
    """Another gate (an open one by default), but sequential while the world model is down or always too late, or while
    the engine fails when requests are cancelled.

    After `failures` failed or late predictions in a row, or as many cancellations, for `pause` turns. Having nothing to
    say is no failure.
    """

    def __init__(self, failures: int = 5, pause: int = 50, gate: Gate | None = None) -> None:
        self._fuse = Fuse(failures, pause)
        self._cancels = CancelWatch(failures, pause)
        self._gate = gate or OpenGate()

    def predicts(self, look: Look) -> Decision:
        if self._fuse.allows() and self._cancels.allows():
            return self._gate.predicts(look)
        return Decision(What.PREDICT, look.level, look.kind, "", allowed=False, why=Why.BROKEN)

    def starts(self, start: Start) -> Decision:
        return self._gate.starts(start)

    def asks(self, ask: Ask) -> Decision:
        return self._gate.asks(ask)

    def saw(self, seen: Seen) -> None:
        if isinstance(seen, GenerationEnded):
            self._cancels.saw(seen)
        elif isinstance(seen, Settled):
            if seen.outcome in (Outcome.CANCEL, Outcome.FAILED):
                self._fuse.record(failed=True)
            elif seen.said:
                self._fuse.record(failed=False)
        self._gate.saw(seen)
