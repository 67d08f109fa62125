"""A model server of several replicas as a `Policy`: what it says is given, when it says it comes from a roofline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import anyio

from obsspec.protocols import OnTokens
from obsspec.sim.alarm import Alarm
from obsspec.sim.prefixes import PrefixCache
from obsspec.sim.replica import Replica, Request, Room
from obsspec.sim.roofline import StepCost
from obsspec.values import Completion, Priority, Sampling, Timing, Tokens

Say = Callable[[Tokens, Sampling], Completion]
"""What a model samples after a prompt: a function of its arguments alone."""


class Routing(StrEnum):
    """Where speculative requests go. Committed ones stay on the replica that their conversation began on."""

    STICKY = "sticky"  # to the replica that holds their prefix
    WANDER = "wander"  # to the next one in turn, as requests with fresh ids do


@dataclass(slots=True)
class _Member:
    replica: Replica
    cache: PrefixCache


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Totals: tokens sampled by requests that came to their end and by cancelled ones, prompt tokens computed."""

    started: int
    cancelled: int
    tokens: int
    cancelled_tokens: int
    prefilled: int
    busy_s: float
    sequence_s: float


class ModelServer:
    """Create it inside a running simulation. Cancelling `generate` frees what the request used at once, and tells
    `on_tokens` how far it had come. Without `priorities` all requests are equal to the engine.

    `in_flight`: requests that it has, at all replicas.
    """

    weight_version = "0"

    def __init__(
        self,
        say: Say,
        cost: StepCost,
        room: Room | None = None,
        *,
        replicas: int = 1,
        routing: Routing = Routing.STICKY,
        priorities: bool = True,
        prefix_cache: bool = True,
    ) -> None:
        room = room or Room()
        self._say = say
        self._routing = routing
        self._priorities = priorities
        self._members = [
            _Member(Replica(cost, room), PrefixCache(room.kv_tokens if prefix_cache else 0)) for _ in range(replicas)
        ]
        self._homes: dict[int, _Member] = {}
        self._next = 0
        self._clock = Alarm(_nothing)
        self._started = self._cancelled = self._cancelled_tokens = 0
        self.in_flight = 0

    def counts(self) -> ServerCounts:
        replicas = [member.replica for member in self._members]
        return ServerCounts(
            self._started,
            self._cancelled,
            sum(replica.tokens for replica in replicas) - self._cancelled_tokens,
            self._cancelled_tokens,
            sum(replica.prefilled for replica in replicas),
            sum(replica.busy_s for replica in replicas),
            sum(replica.sequence_s for replica in replicas),
        )

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        completion = self._say(prompt, sampling)
        ids = completion.token_ids
        member = self._route(prompt[0], priority)
        done = anyio.Event()
        uncached = len(prompt) - member.cache.cached(prompt)
        seen = priority if self._priorities else Priority.COMMITTED
        request = Request(len(ids), len(prompt), uncached, seen, done.set)
        sent_s = self._clock.now()
        self._started += 1
        self.in_flight += 1
        member.replica.submit(request)
        try:
            await done.wait()
        except anyio.get_cancelled_exc_class():
            member.replica.drop(request)
            self._cancelled += 1
            self._cancelled_tokens += request.given
            if request.given:
                member.cache.keep(prompt + ids[: request.given])
            if on_tokens is not None:
                on_tokens(request.given)
            raise
        finally:
            self.in_flight -= 1
        member.cache.keep(prompt + ids)
        return replace(completion, timing=Timing(sent_s, request.first_s, self._clock.now()))

    def forget(self, conversation: int) -> None:
        """A conversation is over; without this its cache is dropped when room is needed."""
        home = self._homes.pop(conversation, None)
        if self._routing is Routing.STICKY:  # nowhere else was anything of it
            if home is not None:
                home.cache.forget(conversation)
            return
        for member in self._members:
            member.cache.forget(conversation)

    def _route(self, conversation: int, priority: Priority) -> _Member:
        if self._routing is Routing.WANDER and priority is Priority.SPECULATIVE:
            self._next += 1
            return self._members[self._next % len(self._members)]
        home = self._homes.get(conversation)
        if home is None:
            home = self._homes[conversation] = min(self._members, key=lambda member: member.replica.load)
        return home


def _nothing() -> None:
    return None
