"""Workloads have the means they are asked for, and simulated rollouts are rollouts."""

from __future__ import annotations

from dataclasses import replace

import anyio
import numpy as np
import pytest

from obsspec.history import guard_after
from obsspec.sim import ids, published
from obsspec.sim.ids import Mark
from obsspec.sim.sources import Skill, candidates, lognormal
from obsspec.sim.workload import PlannedTurn, Workload, draw_workload, scaled, token_quantiles
from obsspec.sim.world import SimRenderer, SimSandbox, World, wrong
from obsspec.values import ConfigError, Exchange, Guard, Observation, Refused, Sampling, SandboxError, ToolCall
from tests.sim.conftest import SMALL, in_virtual_time


def test_a_workload_has_the_means_that_were_asked_for() -> None:
    load = draw_workload(SMALL, 200, seed=3)
    turns = [turn for rollout in load.turns for turn in rollout]
    calls = [turn for turn in turns if turn.command]
    assert load.calls == len(calls) == pytest.approx(200 * SMALL.calls, abs=1)
    assert np.mean([turn.tokens for turn in turns]) == pytest.approx(SMALL.tokens, rel=0.01)
    assert np.mean([turn.tool_s for turn in calls]) == pytest.approx(1.3, rel=0.01)
    assert np.mean([turn.command == "cat" for turn in calls]) == pytest.approx(0.7, abs=0.01)
    assert all(not rollout[-1].command and all(t.command for t in rollout[:-1]) for rollout in load.turns)
    assert np.std(np.log(token_quantiles(replace(SMALL, tokens=400.0), 4000))) == pytest.approx(SMALL.spread, abs=0.12)


def test_the_same_seed_gives_the_same_workload_and_another_another() -> None:
    assert draw_workload(SMALL, 50, 1) == draw_workload(SMALL, 50, 1)
    assert draw_workload(SMALL, 50, 1) != draw_workload(SMALL, 50, 2)
    longer = draw_workload(replace(SMALL, tokens=120.0), 50, 1)
    assert [t.tool_s for r in longer.turns for t in r] == [
        t.tool_s for r in draw_workload(SMALL, 50, 1).turns for t in r
    ]


def test_a_mean_outside_its_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="a mean of 5000"):
        draw_workload(replace(SMALL, tokens=5000.0), 10, 1)


def test_slower_tools_are_slower_by_one_factor() -> None:
    load = draw_workload(scaled(SMALL, 2.6), 100, 1)
    assert np.mean([t.tool_s for r in load.turns for t in r[:-1]]) == pytest.approx(2.6, rel=0.01)


def test_the_published_commands_add_up_to_the_published_totals() -> None:
    rows = published.command_rows()
    count = sum(row.count for row in rows)
    assert count == pytest.approx(4096 * published.CALLS)
    assert sum(row.tool_s * row.count for row in rows) / count == pytest.approx(1.69)
    assert rows[-1].match == pytest.approx(0.58, abs=0.01)
    skills = published.skills(0.5735, 0.0305, 0.105)
    shares = {row.name: row.count / count for row in rows}
    assert sum(skills[name].match * share for name, share in shares.items()) == pytest.approx(0.5735, abs=0.002)
    assert skills["mkdir"].match > skills["cat"].match > skills["ls"].match


def test_a_prompt_says_where_it_stands_only_while_predictions_are_right() -> None:
    world = World(draw_workload(SMALL, 3, 1))
    renderer = SimRenderer(world)
    prompt = renderer.start("2")
    assert (len(prompt), ids.at(prompt[-1])) == (SMALL.prompt_tokens, (2, 0))
    completion = world.say(prompt, Sampling(10_000))
    assert len(completion.token_ids) == world.workload.turns[2][0].tokens
    truth = world.truth(completion.token_ids[-1])
    right = renderer.extend(prompt, completion.token_ids, [Observation(truth)])
    lost = renderer.extend(prompt, completion.token_ids, [Observation(wrong(truth))])
    assert len(right) == len(lost)
    assert (ids.mark(right[-1]), ids.mark(lost[-1])) == (Mark.PLACE, Mark.LOST_PLACE)
    assert ids.at(right[-1]) == (2, 1)
    astray = world.say(lost, Sampling(10_000, seed=4))
    assert ids.mark(astray.token_ids[-1]) is Mark.LOST_CALL
    again = renderer.extend(lost, astray.token_ids, [Observation(world.truth(astray.token_ids[-1]))])
    assert ids.mark(again[-1]) is Mark.LOST_PLACE  # a right prediction does not lead back


def test_the_sandbox_takes_no_call_that_the_rollout_does_not_make() -> None:
    world = World(draw_workload(SMALL, 3, 1))
    renderer = SimRenderer(world)
    prompt = renderer.start("1")
    first = world.say(prompt, Sampling(10_000))
    (call,) = renderer.parse(first).calls

    async def run() -> None:
        sandbox = SimSandbox(world, 1)
        await sandbox.execute(call)
        with pytest.raises(SandboxError):
            await sandbox.execute(call)  # twice
        with pytest.raises(SandboxError):
            await SimSandbox(world, 0).execute(call)

    in_virtual_time(run)


async def _sent_ahead(turns: int) -> tuple[float, list[Observation | Refused]]:
    """All calls of a rollout at once, each guarded by those before it, and one that is guarded by a wrong one."""
    planned = [PlannedTurn(10, "ls", tool_s=1.0, observation_tokens=5, way_s=0.9) for _ in range(turns)]
    world = World(Workload(((*planned, PlannedTurn(10)),), 50, tuple(planned)))
    renderer = SimRenderer(world)
    prompt, history = renderer.start("0"), list[Exchange]()
    sandbox = SimSandbox(world, 0)
    answers: dict[int, Observation | Refused] = {}

    async def ask(number: int, call: ToolCall, guard: Guard) -> None:
        answers[number] = await sandbox.execute_if(call, guard)

    async with anyio.create_task_group() as tasks:
        for level in range(turns):
            completion = world.say(prompt, Sampling(100))
            (call,) = renderer.parse(completion).calls
            tasks.start_soon(ask, level, call, guard_after(history))
            seen = Observation(world.truth(completion.token_ids[-1]))
            if level == turns - 1:
                history[-1] = Exchange(history[-1].calls, (Observation(wrong(history[-1].observations[0].text)),))
                tasks.start_soon(ask, turns, call, guard_after(history))
            history.append(Exchange((call,), (seen,)))
            prompt = renderer.extend(prompt, completion.token_ids, [seen])
    return anyio.current_time(), [answers[number] for number in range(turns + 1)]


def test_guarded_calls_share_the_way_and_wait_for_each_other_in_the_sandbox() -> None:
    seconds, answers = in_virtual_time(lambda: _sent_ahead(4))
    assert seconds == pytest.approx(0.9 + 4 * 0.1)
    assert [isinstance(answer, Observation) for answer in answers] == [True] * 4 + [False]


def test_sources_are_right_as_often_as_they_are_said_to_be() -> None:
    skill = Skill(match=0.6, latency_s=0.1, late=0.1, silent=0.1, fresh=0.3, match_any=0.7)
    one = [candidates("t", skill, n, 0, 1) for n in range(4000)]
    assert np.mean([found == ["t"] for found in one]) == pytest.approx(0.6 / 0.8, abs=0.02)
    four = [candidates("t", skill, n, 0, 4) for n in range(4000)]
    assert np.mean([len(found) for found in four]) == pytest.approx(1 + 3 * 0.3, abs=0.03)
    assert np.mean(["t" in found for found in four]) == pytest.approx(0.7 / 0.8, abs=0.02)
    assert all(len(set(found)) == len(found) for found in four)
    draws = [lognormal(0.1, 0.1, ids.chance(n, 5)) for n in range(20_000)]
    assert (np.mean(draws), np.std(draws)) == (pytest.approx(0.1, rel=0.03), pytest.approx(0.1, rel=0.1))
