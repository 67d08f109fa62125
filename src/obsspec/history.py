"""The history of a sandbox as a digest, and whether a guard holds on it: pure, the same on both sides of a wire.

The digest is a chain over all commands and what they answered. The last answer alone would not do: after a refused
call the loop makes another one, which may well answer the same, and a call guarded by that answer alone would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import reduce
from hashlib import sha256

from obsspec.values import Exchange, Guard, Observation, Refusal, ToolCall

START = "0" * 32  # nothing has been executed
LOST = ""  # a command was cut off: no guard holds any more


def extend(digest: str, call: ToolCall, observation: Observation) -> str:
    """The digest after one more command. Of the observation, what the policy sees of it."""
    if digest == LOST:
        return LOST
    said = sha256(observation.text.encode("utf-8", "surrogatepass")).hexdigest()
    command = sha256(call.command.encode("utf-8", "surrogatepass")).hexdigest()
    return sha256(f"{digest} {command} {said}".encode()).hexdigest()[: len(START)]


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
    RUN = "run"
    WAIT = "wait"  # for commands that are to come before
    REFUSE = "refuse"


class History:
    """What a sandbox remembers of its commands: how many there were, the digest, and whether the state is settled."""

    def __init__(self) -> None:
        self.number = 0  # of the last command that began
        self._digest = START
        self._settled = True

    def begin(self) -> int:
        """The next command begins; returns its number. Without an `end` the history is lost."""
        self.number += 1
        self._before, self._digest = self._digest, LOST
        return self.number

    def end(self, call: ToolCall, observation: Observation, *, jobs: bool) -> None:
        """The command that began last has answered. `jobs`: processes of this or an earlier command still run."""
        self._digest = extend(self._before, call, observation)
        self._settled = not (jobs or observation.timed_out or observation.state_lost)

    def judge(self, guard: Guard) -> Judgement:
        """Between commands."""
        if self._digest == LOST or guard.after < self.number:
            return Judgement.REFUSE
        if guard.after > self.number:
            return Judgement.WAIT
        return Judgement.RUN if guard.digest == self._digest and self._settled else Judgement.REFUSE

    def refusal(self, guard: Guard) -> Refusal:
        """Why a guard that is refused is refused."""
        same = guard.after == self.number and guard.digest == self._digest
        return Refusal.STATE if same else Refusal.HISTORY
