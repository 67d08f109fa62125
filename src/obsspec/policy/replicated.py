"""Several engines of the same weights as one policy: each request goes where its prefix is, unless it is overloaded.

A rollout's turns, the branches on them and what is generated again after a mismatch share their history, so they stay
on one replica and read it once; only requests that no replica has a beginning of are spread by load.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol, runtime_checkable

import anyio

from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.policy.prefix_homes import PrefixHomes
from obsspec.protocols import SEVERAL, OnTokens, Policy, Promotes
from obsspec.values import Completion, EngineError, Priority, Sampling, Tokens

SPREAD = 8  # requests that the home of a long prefix may have more than the least busy replica
LONG = 1024  # tokens; for a shorter prefix, as every new rollout has one, proportionally fewer
REST_S = 1.0  # that nothing is sent to a replica that failed, twice as long each time it fails again
DOUBLED = 6  # times at most


@runtime_checkable
class Counts(Protocol):
    """A policy that knows how many requests its engine has, those of others included."""

    @property
    def busy(self) -> int: ...


class Replicated:
    """A `Policy` over `replicas`. Cancelling ends the request at the replica that has it, and only there.

    A request that fails is not sent again here: whoever does that sends it where it is routed by then, and that is
    elsewhere for a while, because an engine that is down would be the least busy one. While weights are published,
    replicas may differ; a completion names the version of its own.
    """

    def __init__(self, replicas: Sequence[Policy], *, spread: int = SPREAD) -> None:
        self._replicas = tuple(replicas)
        self._spread = spread
        self._open = [0] * len(self._replicas)
        self._homes = PrefixHomes()
        self._failures = [0] * len(self._replicas)  # one after the other
        self._rests_until = [-math.inf] * len(self._replicas)

    @property
    def weight_version(self) -> str:
        versions = [replica.weight_version for replica in self._replicas]
        return versions[0] if len(set(versions)) == 1 else SEVERAL.join(versions)

    @property
    def busy(self) -> int:
        """Requests in flight at all replicas."""
        return sum(self._load(index) for index in range(len(self._replicas)))

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        for replica in self._replicas:
            if isinstance(replica, Promotes):
                replica.promote(prompt, sampling)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        index = self._route(prompt)
        self._homes.add(prompt, index)  # at once: siblings are to follow
        self._open[index] += 1
        try:
            replica = self._replicas[index]
            completion = await replica.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)
        except EngineError as error:
            if error.retryable:
                self._rest(index)
            raise
        finally:
            self._open[index] -= 1
        self._failures[index] = 0
        self._homes.add((*prompt, *completion.token_ids), index)
        return completion

    def _rest(self, index: int) -> None:
        """Requests that were under way together fail together: once."""
        now = anyio.current_time()
        if now >= self._rests_until[index]:
            self._rests_until[index] = now + REST_S * 2 ** min(self._failures[index], DOUBLED)
            self._failures[index] += 1

    def _route(self, prompt: Tokens) -> int:
        now, every = anyio.current_time(), range(len(self._replicas))
        usable = [index for index in every if now >= self._rests_until[index]] or every
        homes, held = self._homes.find(prompt)
        home = min(homes.intersection(usable) or usable, key=self._load)
        least = min(usable, key=self._load)
        more = self._spread * min(1.0, held / LONG)
        return least if self._load(home) > self._load(least) + more else home

    def _load(self, index: int) -> int:
        replica = self._replicas[index]
        return max(self._open[index], replica.busy if isinstance(replica, Counts) else 0)


@asynccontextmanager
async def open_endpoints(
    urls: str, model: str, *, api_key: str = ""
) -> AsyncGenerator[TokenEndpointPolicy | Replicated, None]:
    """The engine at a URL, or several that serve the same model, comma-separated; all checked. Raises `ConfigError`."""
    async with AsyncExitStack() as stack:
        endpoints: list[TokenEndpointPolicy] = []
        for url in filter(None, (url.strip() for url in urls.split(","))):
            endpoints.append(await stack.enter_async_context(TokenEndpointPolicy(url, model, api_key=api_key)))
        for endpoint in endpoints:
            await endpoint.check()
        yield endpoints[0] if len(endpoints) == 1 else Replicated(endpoints)
