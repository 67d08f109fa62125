"""An engine whose requests slow each other down: a scripted policy with processor sharing, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import anyio

from obsspec.protocols import OnTokens
from obsspec.testing.delays import Delay, constant
from obsspec.testing.policy import Request, sample
from obsspec.testing.scripts import Script
from obsspec.values import Completion, Priority, Sampling, Timing, Tokens

_DONE = 1e-6  # tokens; less than this is left: done


@dataclass(slots=True)
class _Running:
    ends_at: float  # in tokens that the engine has given to each request
    started_at: float
    changed: anyio.Event = field(default_factory=anyio.Event)


class ContendedPolicy:
    """What it samples is a function of (prompt, sampling, weight version) alone; how fast, of how many it serves.

    Up to `capacity` requests run at full speed, `token_s` a token; of n more than that each runs at capacity / n of
    it. `first_tokens`: work of a request before its first token, in tokens, drawn anew for each. A cancelled request
    leaves at once, and its tokens so far are told.
    """

    weight_version = "0"

    def __init__(
        self,
        script: Script,
        *,
        capacity: float,
        token_s: float = 0.02,
        first_tokens: Delay | None = None,
    ) -> None:
        self._script = script
        self._capacity = capacity
        self._token_s = token_s
        self._first_tokens = first_tokens or constant(0.0)
        self._given = 0.0  # tokens that a request which was there from the beginning would have by now
        self._given_s = 0.0
        self.open: dict[int, _Running] = {}
        self.started = self.finished = self.cancelled = 0
        self.tokens = 0.0  # of work done, kept or not

    @property
    def in_flight(self) -> int:
        return len(self.open)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        request = Request(self.started, prompt, sampling, priority, self.weight_version)
        self.started += 1
        completion = sample(self._script, request)
        before = self._first_tokens()
        sent_s = anyio.current_time()
        self._advance()
        running = self.open[request.number] = _Running(self._given + before + len(completion.token_ids), self._given)
        self._tell()
        try:
            await self._work(running)
            self.finished += 1
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self._advance()
            del self.open[request.number]
            self._tell()
            done = self._given - running.started_at
            self.tokens += done
            if on_tokens is not None and done > before:
                on_tokens(min(len(completion.token_ids), int(done - before + _DONE)))
        return replace(completion, timing=Timing(sent_s, sent_s, anyio.current_time()))

    async def _work(self, running: _Running) -> None:
        while running.ends_at - self._given > _DONE:
            left = (running.ends_at - self._given) / self._speed
            changed = running.changed
            with anyio.move_on_after(left):
                await changed.wait()
            self._advance()

    @property
    def _speed(self) -> float:
        """Tokens a second of each request."""
        return min(1.0, self._capacity / max(1, len(self.open))) / self._token_s

    def _advance(self) -> None:
        now = anyio.current_time()
        self._given += (now - self._given_s) * self._speed if self.open else 0.0
        self._given_s = now

    def _tell(self) -> None:
        """Everybody's end has moved."""
        for running in self.open.values():
            running.changed.set()
            running.changed = anyio.Event()
