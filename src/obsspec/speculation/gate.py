"""Whether to try. The gate never changes what is sampled, only whether work starts early."""

from __future__ import annotations

from typing import Protocol

from obsspec.speculation.node import Node
from obsspec.values import Outcome


class Gate(Protocol):
    def allows(self, node: Node) -> bool:
        """May the observation of this node's turn be predicted now?"""
        ...

    def record(self, outcome: Outcome) -> None:
        """Learn from a settled turn."""
        ...


class OpenGate:
    """Always tries."""

    def allows(self, node: Node) -> bool:
        return True

    def record(self, outcome: Outcome) -> None:
        return None


class Breaker:
    """Goes sequential after `failures` failed or late predictions in a row, and tries again after `pause` turns.

    One breaker may serve many sessions: a world model that is down, or too slow, is so for all of them.
    """

    def __init__(self, failures: int = 5, pause: int = 50) -> None:
        self._limit = failures
        self._pause = pause
        self._in_a_row = 0
        self._refusals_left = 0

    def allows(self, node: Node) -> bool:
        if self._refusals_left == 0:
            return True
        self._refusals_left -= 1
        return False

    def record(self, outcome: Outcome) -> None:
        if outcome in (Outcome.FAILED, Outcome.CANCEL):
            self._in_a_row += 1
            if self._in_a_row >= self._limit:
                self._in_a_row = 0
                self._refusals_left = self._pause
        elif outcome is not Outcome.GATED:
            self._in_a_row = 0
