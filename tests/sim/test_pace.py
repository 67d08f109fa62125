"""The cost of an engine's steps, found again in the times of the generations that it made."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from obsspec.rollout.collector import Collector, Job, RolloutResult
from obsspec.rollout.rules import RolloutRules
from obsspec.sim.pace import engine_cost
from obsspec.sim.replica import Room
from obsspec.sim.roofline import StepCost
from obsspec.sim.run import UNLIMITED
from obsspec.sim.server import ModelServer
from obsspec.sim.workload import draw_workload
from obsspec.sim.world import SimEnvironment, SimRenderer, World
from obsspec.values import ConfigError
from tests.sim.conftest import SMALL, in_virtual_time

CHUNK = 8
ONE_BY_ONE = StepCost(overhead_s=0.008, token_s=0.02)  # a token costs the same in a prompt and beside others
BATCHING = StepCost(overhead_s=0.01, sequence_s=0.002, token_s=0.0005, prefill_s=0.02)


def rollouts(cost: StepCost, concurrency: int) -> list[RolloutResult]:
    world = World(draw_workload(replace(SMALL, prompt_tokens=60, observation_tokens=20.0), 16, 1))
    rules = RolloutRules(SimRenderer(world), UNLIMITED, "sim")
    jobs = [Job(SimEnvironment(world, number), rules) for number in range(16)]

    async def run() -> list[RolloutResult]:
        return await Collector(ModelServer(world.say, cost, Room(chunk=CHUNK)), concurrency).run(jobs)

    return in_virtual_time(run)


def agent_s(made: list[RolloutResult]) -> float:
    return sum(result.trajectory.agent_s for result in made) / len(made)


@pytest.mark.parametrize("cost", [ONE_BY_ONE, BATCHING])
@pytest.mark.parametrize("concurrency", [3, 8])
def test_of_rollouts_beside_each_other(cost: StepCost, concurrency: int) -> None:
    made = rollouts(cost, concurrency)
    found = engine_cost([made], CHUNK)
    for sequences, prefill in ((1, 0), (3, 0), (2, CHUNK)):
        expected = cost.step(sequences, 0.0, prefill)
        assert found.step(sequences, 0.0, prefill) == pytest.approx(expected, rel=0.25)
    assert agent_s(rollouts(found, concurrency)) == pytest.approx(agent_s(made), rel=0.05)


def test_of_lone_rollouts_as_much_as_they_tell() -> None:
    found = engine_cost([rollouts(ONE_BY_ONE, 1)], CHUNK)
    assert found.step(1, 0.0) == pytest.approx(0.028, rel=0.01)
    assert found.step(0, 0.0, CHUNK) == pytest.approx(0.168, rel=0.05)
    lone = engine_cost([rollouts(StepCost(overhead_s=0.03), 1)], CHUNK)
    assert lone.step(2, 0.0) == pytest.approx(1.05 * lone.step(1, 0.0), rel=0.01)  # assumed
    assert min(astuple(lone)) >= 0


def test_nothing_is_known_from_nothing() -> None:
    with pytest.raises(ConfigError, match="nothing tells how fast"):
        engine_cost([], CHUNK)
