"""Whole arms: repeatable, lossless, and faster where they should be."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from obsspec.rollout.collector import Shared
from obsspec.sim import regime
from obsspec.sim.figures import Figures
from obsspec.sim.regime import ARMS, Axes, measure
from obsspec.sim.replica import Room
from obsspec.sim.roofline import StepCost
from obsspec.sim.run import Arm, Parts, simulate
from obsspec.sim.server import ModelServer
from obsspec.sim.sources import Skill, StatedSource
from obsspec.sim.workload import draw_workload
from obsspec.sim.world import World
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.speculation.session import SpeculationSettings
from tests.sim.conftest import SMALL

IDLE = StepCost(overhead_s=0.02)
SHARED = StepCost(sequence_s=0.004)  # a fixed number of tokens a second for all


def arm(
    match: float | None,
    *,
    seed: int = 1,
    cost: StepCost = IDLE,
    depth: int = 1,
    breadth: int = 1,
    concurrency: int = 8,
    gated: bool = False,
    guarded: bool = False,
    slots: int = 256,
) -> Arm:
    return Arm(
        World(draw_workload(SMALL, 24, seed)),
        partial(parts, match, cost, gated, slots),
        SpeculationSettings(depth, breadth, guarded=guarded),
        concurrency,
    )


def parts(match: float | None, cost: StepCost, gated: bool, slots: int, world: World) -> Parts:
    policy = ModelServer(world.say, cost, Room(slots))
    if match is None:
        return Parts(policy)
    skill = Skill(match, 0.05, fresh=0.3, match_any=match)
    source = Shared(StatedSource("lm", world, {"": skill}))
    return Parts(policy, source, ExpectedValueGate()) if gated else Parts(policy, source)


def play(*arguments: float | None, **options: object) -> Figures:
    return simulate(arm(*arguments, **options))  # pyright: ignore[reportArgumentType]


def test_the_same_arm_gives_the_same_figures_and_another_seed_others() -> None:
    assert play(0.7, depth=3, cost=SHARED) == play(0.7, depth=3, cost=SHARED)
    assert play(0.7, depth=3, cost=SHARED).agent != play(0.7, depth=3, cost=SHARED, seed=2).agent


def test_an_idle_engine_hides_what_arithmetic_says_it_hides() -> None:
    """Always right, no contention: a turn after a tool call begins 50 ms after the call, not after its end."""
    sequential, figures = play(None), play(1.0)
    world = arm(None).world
    hidden = sum(
        min(0.02 * (1 + after.tokens - 1), turn.tool_s - 0.05)
        for rollout in world.workload.turns
        for turn, after in pairwise(rollout)
        if turn.tool_s > 0.05
    )
    assert figures.match > 0.99
    assert 24 * (sequential.agent_s - figures.agent_s) == pytest.approx(hidden, rel=0.01)
    assert figures.discarded == 0


def test_a_source_that_is_never_right_wastes_all_it_starts_and_changes_nothing_on_an_idle_engine() -> None:
    sequential, figures = play(None), play(0.0)
    assert figures.agent_s == pytest.approx(sequential.agent_s, rel=1e-3)  # a prompt may wait for another's step
    assert figures.match == 0
    assert figures.discarded > figures.discarded_completed > 0


def test_depth_pays_on_an_idle_engine() -> None:
    one, four = play(0.9), play(0.9, depth=4)
    assert four.agent_s < one.agent_s
    assert 1 < four.realized_depth <= 4


def test_h01_a_full_engine_is_slower_with_an_open_gate_and_not_with_the_shipped_one() -> None:
    sequential = play(None, cost=SHARED, concurrency=24)
    free = play(0.02, cost=SHARED, concurrency=24)
    gated = play(0.02, cost=SHARED, concurrency=24, gated=True)
    assert free.agent_s > 1.02 * sequential.agent_s
    assert gated.agent_s <= sequential.agent_s / 0.99


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("depth", "breadth"), [(1, 1), (8, 1), (1, 8), (4, 2), (8, 8)])
def test_h01_with_saturated_slots_no_depth_or_breadth_is_slower(depth: int, breadth: int, guarded: bool) -> None:
    full = {"cost": SHARED, "concurrency": 24, "slots": 8}
    sequential = play(None, **full)
    figures = play(0.66, depth=depth, breadth=breadth, gated=True, guarded=guarded, **full)
    assert figures.agent_s <= sequential.agent_s / 0.99


def test_guarded_calls_hide_more_than_observations_alone() -> None:
    """On a wire; calls that keep the sandbox busy can not be hidden by sending them early."""
    near = replace(SMALL, commands=tuple(replace(c, on_the_way=0.99) for c in SMALL.commands))
    world = World(draw_workload(near, 24, 1))
    arms = {
        guarded: Arm(world, partial(parts, 0.9, IDLE, False, 256), SpeculationSettings(4, 1, guarded=guarded), 8)
        for guarded in (False, True)
    }
    sequential = simulate(Arm(world, partial(parts, None, IDLE, False, 256), concurrency=8))
    observed, guarded = simulate(arms[False]), simulate(arms[True])
    assert guarded.hidden(sequential) > observed.hidden(sequential) + 0.15
    assert guarded.sent >= guarded.ran + guarded.refused > 0
    assert play(0.9, depth=4, guarded=True).agent_s == pytest.approx(play(0.9, depth=4).agent_s, rel=0.02)


def test_h02_depth_zero_costs_nothing() -> None:
    assert play(0.9, depth=0, cost=SHARED).agent == play(None, cost=SHARED).agent


def test_the_map_has_every_arm_at_every_point_on_the_same_rollouts() -> None:
    axes = Axes(tool_s=(0.05, 1.7), tokens=(40.0,), match=(0.3, 0.9), load=(4,), rollouts=16)
    measured = list(measure(axes, ARMS))
    assert len(measured) == 4 * len(ARMS)
    assert {each.point for each in measured} == set(axes.points())
    assert len({each.sequential.agent_s for each in measured}) == 2  # one for each tool latency
    speeds = {(each.arm, each.point.tool_s, each.point.match): each.speed for each in measured}
    assert speeds["guarded", 1.7, 0.9] > speeds["cascade", 1.7, 0.9] > 1.05
    assert min(speed for (name, *_), speed in speeds.items() if name in regime.GATED) >= regime.NEVER_BELOW


def test_the_example_of_the_page_holds() -> None:
    page = Path(__file__).parents[2] / "docs" / "simulate.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})  # noqa: S102 - our own page
