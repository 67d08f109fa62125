"""A gate that says yes or no at random: whatever a gate says, the rollouts must be the same."""

from __future__ import annotations

from random import Random

from obsspec.speculation.decisions import (
    Ask,
    Decision,
    GenerationEnded,
    GenerationStarted,
    Look,
    Seen,
    Start,
    What,
    Why,
)
from obsspec.testing.delays import Seed


class RandomGate:
    """`yes`: how often it agrees. Counts the generations it was told of in `running`, and its news in `told`."""

    def __init__(self, seed: Seed, yes: float = 0.5) -> None:
        self._random = Random(seed)
        self._yes = yes
        self.running: set[int] = set()
        self.told = 0

    def predicts(self, look: Look) -> Decision:
        return Decision(What.PREDICT, look.level, look.kind, "", self._draw(), Why.PLANNED)

    def starts(self, start: Start) -> Decision:
        p = start.chain * start.confidence
        return Decision(What.START, start.level, start.kinds[-1], start.source, self._draw(), Why.PLANNED, p)

    def asks(self, ask: Ask) -> Decision:
        return Decision(What.ASK, ask.level, ask.kind, ask.source, self._draw(), Why.PLANNED, ask.p)

    def saw(self, seen: Seen) -> None:
        """Each generation starts once and ends once."""
        self.told += 1
        match seen:
            case GenerationStarted():
                assert seen.ticket not in self.running
                self.running.add(seen.ticket)
            case GenerationEnded():
                self.running.remove(seen.ticket)
            case _:
                pass

    def _draw(self) -> bool:
        return self._random.random() < self._yes
