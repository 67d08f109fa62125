"""Several replicas behind one policy client: prefix caches, routing, cancellation."""

from __future__ import annotations

import anyio
import pytest

from obsspec.sim import ids
from obsspec.sim.prefixes import PrefixCache, common
from obsspec.sim.roofline import StepCost
from obsspec.sim.server import ModelServer, Routing
from obsspec.values import Completion, FinishReason, Priority, Sampling, Tokens
from tests.sim.conftest import in_virtual_time

COST = StepCost(overhead_s=0.01, token_s=1e-4)
PROMPT = 400


def say(prompt: Tokens, sampling: Sampling) -> Completion:
    return Completion((9,) * sampling.max_tokens, (-1.0,) * sampling.max_tokens, FinishReason.STOP)


def prompt_of(rollout: int) -> Tokens:
    return (ids.make(ids.Mark.START, rollout), *(1,) * (PROMPT - 1))


@pytest.mark.parametrize("at", [0, 1, 7, 63, 64, 99, 100])
def test_the_common_prefix_is_found_wherever_it_ends(at: int) -> None:
    a, b = (1,) * 100, (1,) * at + (2,) * (100 - at)
    assert common(a, b) == common(b, a) == at
    assert common(a, b, at // 2) == at
    assert common(a, b, min(100, at + 1)) == min(100, at + 1)


def test_a_cache_knows_branches_and_forgets_the_oldest_conversation() -> None:
    cache = PrefixCache(capacity=1000)
    first = prompt_of(1)
    cache.keep((*first, 5, 5, 5))
    cache.keep((*first, 6, 6))
    assert cache.cached((*first, 5, 5, 5, 8)) == PROMPT + 3
    assert cache.cached((*first, 6, 7)) == PROMPT + 1
    assert cache.cached(first) == PROMPT - 1  # something has to be computed
    cache.keep(prompt_of(2))
    assert cache.cached(first) == PROMPT - 1
    cache.keep(prompt_of(3))  # the second is the one that was not used for longest
    assert (cache.cached(prompt_of(2)), cache.cached(first) > 0) == (0, True)
    cache.forget(first[0])
    assert cache.cached(first) == 0


async def turns(server: ModelServer, rollout: int, branches: int = 0) -> None:
    """Three turns of a rollout, and beside the later ones some branches on its prompt."""
    prompt = prompt_of(rollout)
    for turn in range(3):
        async with anyio.create_task_group() as tasks:
            for number in range(branches if turn else 0):
                tasks.start_soon(branch, server, (*prompt, 100 + number))
            await server.generate(prompt, Sampling(20))
        prompt = (*prompt, *(9,) * 20, 1000 + turn)


async def branch(server: ModelServer, prompt: Tokens) -> None:
    await server.generate(prompt, Sampling(5), priority=Priority.SPECULATIVE)


def prefilled(routing: Routing, branches: int) -> int:
    async def run() -> int:
        server = ModelServer(say, COST, replicas=4, routing=routing)
        async with anyio.create_task_group() as tasks:
            for rollout in range(8):
                tasks.start_soon(turns, server, rollout, branches)
        assert server.in_flight == 0
        return server.counts().prefilled

    return in_virtual_time(run)


def test_h03_a_branch_goes_to_the_replica_that_holds_its_prefix() -> None:
    plain = prefilled(Routing.STICKY, 0)
    assert plain == 8 * (PROMPT + 2)  # the prompt once, then one new token a turn
    assert prefilled(Routing.STICKY, 2) - plain < 8 * 2 * 2 * 5  # a few tokens for each of the branches
    assert prefilled(Routing.WANDER, 2) > prefilled(Routing.STICKY, 2) + 8 * PROMPT


def test_conversations_spread_over_the_replicas() -> None:
    async def run() -> float:
        server = ModelServer(say, StepCost(sequence_s=0.01), replicas=4)
        async with anyio.create_task_group() as tasks:
            for rollout in range(8):
                tasks.start_soon(turns, server, rollout)
        return anyio.current_time()

    assert in_virtual_time(run) == pytest.approx(2 * 3 * 20 * 0.01, rel=0.1)  # two on each replica


def test_cancelling_tells_how_far_it_came_and_what_was_computed_stays_cached() -> None:
    told: list[int] = []

    async def run() -> ModelServer:
        server = ModelServer(say, COST)
        with anyio.move_on_after(0.5):
            await server.generate(prompt_of(1), Sampling(1000), on_tokens=told.append)
        assert server.in_flight == 0
        await server.generate((*prompt_of(1), 9, 9, 9), Sampling(2))
        return server

    counts = in_virtual_time(run).counts()
    assert told == [pytest.approx(46, abs=3)]
    assert (counts.started, counts.cancelled, counts.cancelled_tokens) == (2, 1, told[0])
    assert counts.prefilled == PROMPT + 1
