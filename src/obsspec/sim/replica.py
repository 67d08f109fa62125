"""One engine replica with continuous batching, event by event: time moves from one arrival or departure to the next.

Sequences that decode share a step counter: each step gives every one of them a token, so a sequence ends at a number of
the counter that is known when it begins, and what changes with the batch is only how fast the counter runs. Prompts are
prefilled in chunks, in steps of their own length, during which everybody else gets one token a step: that is how a long
prompt holds the others up. Waiting requests start by priority, then by age; running ones are never preempted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from obsspec.sim.alarm import Alarm
from obsspec.sim.roofline import StepCost
from obsspec.values import Priority

EPSILON = 1e-6  # steps; less than this is left: done


class Stage(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Room:
    """`slots`: sequences that run at a time; `kv_tokens`: their context together; `chunk`: prompt tokens a step."""

    slots: int = 256
    kv_tokens: int = 1_000_000
    chunk: int = 2048


@dataclass(slots=True, eq=False)
class Request:
    """`tokens` to sample, at least one; `prompt` tokens of which `uncached` have to be computed, at least one."""

    tokens: int
    prompt: int
    uncached: int
    priority: Priority
    finished: Callable[[], None]
    stage: Stage = Stage.WAITING
    began_at: float = 0.0  # on the step counter, when the first token was there
    ends_at: float = 0.0
    first_s: float = 0.0
    given: int = 0  # tokens sampled, once it has left


class Replica:
    """`submit` and `drop` requests; each `finished` is called when its last token is there. Reads no clock but the
    alarm's, so all its times are virtual. `busy_s`: during which it had something to do; `steps` made."""

    def __init__(self, cost: StepCost, room: Room) -> None:
        self._cost = cost
        self._room = room
        self._alarm = Alarm(self._ring)
        self._now = self._alarm.now()
        self._given = 0.0  # the step counter
        self._sequences = 0
        self._context = 0.0  # tokens, of all sequences that decode
        self._reserved = 0  # tokens that the sequences admitted need at their end
        self._waiting: list[tuple[bool, int, Request]] = []
        self._ends: list[tuple[float, int, Request]] = []
        self._prefilling: list[Request] = []  # admitted, prompt not yet computed
        self._step_s: float | None = None  # of the prefill step under way
        self._step_ends_s = 0.0
        self._finishing: list[Request] = []  # prompts complete with the prefill step under way
        self._number = 0
        self._open = 0
        self.busy_s = 0.0
        self.tokens = 0
        self.prefilled = 0
        self.sequence_s = 0.0  # integral of the number of running sequences

    @property
    def load(self) -> int:
        """Requests that it has, waiting ones included."""
        return self._open

    def submit(self, request: Request) -> None:
        self._advance()
        self._number += 1
        self._open += 1
        heapq.heappush(self._waiting, (request.priority is not Priority.COMMITTED, self._number, request))
        self._plan()

    def drop(self, request: Request) -> None:
        """It leaves at once, with the tokens it has; what it used is free for others."""
        self._advance()
        match request.stage:
            case Stage.DONE | Stage.DROPPED:
                return
            case Stage.DECODE:
                self._leave(request, int(self._given - request.began_at + EPSILON) + 1)
            case Stage.PREFILL:
                self._prefilling = [each for each in self._prefilling if each is not request]
                self._finishing = [each for each in self._finishing if each is not request]
                self._release(request)
            case Stage.WAITING:
                self._open -= 1
        request.stage = Stage.DROPPED
        self._plan()

    # Time -------------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        self._advance()
        self._plan()

    def _advance(self) -> None:
        """Bring everything up to now; departures on the way are the alarm's, so there is at most the one due now."""
        now = self._alarm.now()
        passed, self._now = now - self._now, now
        if self._step_s is not None:
            self.busy_s += passed
            self.sequence_s += passed * (self._sequences + len(self._prefilling))
            if now >= self._step_ends_s - 1e-12:
                self._end_prefill_step()
        elif self._sequences:
            self.busy_s += passed
            self.sequence_s += passed * self._sequences
            self._give(self._cost.steps(self._sequences, self._context, passed) if passed > 0 else 0.0)
        self._end_decodes()

    def _give(self, steps: float) -> None:
        self._given += steps
        self._context += steps * self._sequences

    def _end_prefill_step(self) -> None:
        self._step_s = None
        self._give(1.0 if self._sequences else 0.0)
        self._end_decodes()
        for request in self._finishing:
            self._prefilling.remove(request)
            request.stage = Stage.DECODE
            request.first_s = self._now
            request.began_at = self._given
            request.ends_at = self._given + request.tokens - 1
            self._sequences += 1
            self._context += request.prompt + 1
            self._number += 1
            heapq.heappush(self._ends, (request.ends_at, self._number, request))
        self._finishing = []

    def _end_decodes(self) -> None:
        ends = self._ends
        while ends and (ends[0][2].stage is not Stage.DECODE or ends[0][0] - self._given <= EPSILON):
            request = heapq.heappop(ends)[2]
            if request.stage is Stage.DECODE:
                self._leave(request, request.tokens)
                request.stage = Stage.DONE
                request.finished()

    def _leave(self, request: Request, tokens: int) -> None:
        """A sequence stops decoding."""
        request.given = min(tokens, request.tokens)
        self.tokens += request.given
        self._sequences -= 1
        self._context -= request.prompt + 1 + self._given - request.began_at
        if not self._sequences:
            self._context = 0.0  # no drift
        self._release(request)

    def _release(self, request: Request) -> None:
        self._reserved -= request.prompt + request.tokens
        self._open -= 1

    # What comes next --------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        if self._step_s is None:
            self._admit()
            if self._prefilling:
                self._begin_prefill_step()
        if self._step_s is not None:
            self._alarm.set(self._step_ends_s)
            return
        self._end_decodes()
        if self._ends:
            steps = self._ends[0][0] - self._given
            self._alarm.set(self._now + self._cost.seconds(self._sequences, self._context, steps))
        else:
            self._alarm.stop()

    def _admit(self) -> None:
        room = self._room
        while self._waiting:
            request = self._waiting[0][2]
            if request.stage is Stage.WAITING:
                needs = request.prompt + request.tokens
                running = self._sequences + len(self._prefilling)
                if running >= room.slots or (running and self._reserved + needs > room.kv_tokens):
                    return
                self._reserved += needs
                request.stage = Stage.PREFILL
                self._prefilling.append(request)
            heapq.heappop(self._waiting)

    def _begin_prefill_step(self) -> None:
        budget = self._room.chunk
        for request in self._prefilling:
            part = min(budget, request.uncached)
            request.uncached -= part
            budget -= part
            if not request.uncached:
                self._finishing.append(request)
            if not budget:
                break
        computed = self._room.chunk - budget
        self.prefilled += computed
        self._step_s = self._cost.step(self._sequences, self._context, computed)
        self._step_ends_s = self._now + self._step_s
