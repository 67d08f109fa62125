"""The history of a sandbox as a digest, and whether a guard holds on it: pure, the same on both sides of a wire.

The digest is a chain over all commands and what they answered. The last answer alone would not do: after a refused
call the loop makes another one, which may well answer the same, and a call guarded by that answer alone would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import reduce

from obsspec import chain
from obsspec.chain import LOST, START
from obsspec.values import Exchange, Guard, Observation, Refusal, ToolCall

__all__ = ["FRESH", "LOST", "START", "History", "Judgement", "advance", "extend", "guard_after"]


def extend(digest: str, call: ToolCall, observation: Observation) -> str:
    """The digest after one more command. Of the observation, what the policy sees of it."""
    return chain.extend(digest, call.command, observation.text)


FRESH = Guard(0, START)


def advance(guard: Guard, exchange: Exchange) -> Guard:
    """The guard of the call that follows the exchange, whose own first call has this guard."""
    number, digest = guard.after, guard.digest
    for call, observation in zip(exchange.calls, exchange.observations, strict=False):  # a malformed call is none
        number, digest = number + 1, extend(digest, call, observation)
    return Guard(number, digest)


def guard_after(history: Sequence[Exchange]) -> Guard:
    """The guard of the call that follows these exchanges, the first of which began in a fresh sandbox."""
    return reduce(advance, history, FRESH)


class Judgement(StrEnum):
    RUN = chain.RUN
    WAIT = chain.WAIT
    REFUSE = chain.REFUSE


class History:
    """What a sandbox remembers of its commands: how many there were, the digest, and whether the state is settled."""

    def __init__(self) -> None:
        self._chain = chain.Chain()

    @property
    def number(self) -> int:
        """Of the last command that began."""
        return self._chain.number

    def begin(self) -> int:
        """The next command begins; returns its number. Without an `end` the history is lost."""
        return self._chain.begin()

    def end(self, call: ToolCall, observation: Observation, *, jobs: bool) -> None:
        """The command that began last has answered. `jobs`: processes of this or an earlier command still run."""
        settled = not (jobs or observation.timed_out or observation.state_lost)
        self._chain.end(call.command, observation.text, settled=settled)

    def judge(self, guard: Guard) -> Judgement:
        """Between commands."""
        return Judgement(self._chain.judge(guard.after, guard.digest))

    def refusal(self, guard: Guard) -> Refusal:
        """Why a guard that is refused is refused."""
        return Refusal(self._chain.refusal(guard.after, guard.digest))
