"""From a recorded run to a plan: what is read, and whether the simulation meets what the run measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from obsspec.rollout.collector import Collector, RolloutResult, Shared, Speculation
from obsspec.rollout.store import RunFolder
from obsspec.sim.plan import Assumed, Plan, PlanSettings, slower
from obsspec.sim.recorded import read_run
from obsspec.testing.delays import constant
from obsspec.testing.policy import ScriptedPolicy
from obsspec.testing.sandbox import oracle
from obsspec.testing.scripts import recite
from obsspec.testing.shell import toy_shell
from obsspec.testing.virtual_clock import run_virtual
from obsspec.testing.world_model import Move, ScriptedWorldModel, always
from obsspec.values import ConfigError
from tests.compare.conftest import TOOL_S, TURNS, job

FIRST_S, TOKEN_S, PREDICTION_S = 0.3, 0.1, 0.25
CONFIG = {"concurrency": 1, "depth": 1, "breadth": 1, "gate": False, "world_model": "same"}


def rollouts(move: Move | None, count: int) -> list[RolloutResult]:
    policy = ScriptedPolicy(recite(*TURNS), first_s=constant(FIRST_S), token_s=constant(TOKEN_S))
    model = ScriptedWorldModel(oracle(toy_shell), always(move or Move.RIGHT), delay_s=constant(PREDICTION_S))
    speculation = Speculation(Shared(model)) if move else None
    return run_virtual(Collector(policy, 1, speculation).run, [job(f"task-{i}") for i in range(count)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rollouts of scripted fakes, each with three calls of 2 s, the predictions right or not made."""
    run = RunFolder(tmp_path / "run", CONFIG)
    for result in rollouts(None, 4):
        run.append("sequential", result)
    for result in rollouts(Move.RIGHT, 4):
        run.append("speculative", result)
    return run.path


def test_reads_turns_tools_sources_and_the_pace_of_the_engine(folder: Path) -> None:
    run = read_run(folder)
    assert len(run.rollouts) == 4
    (*calls, answer) = run.rollouts[0]
    assert [turn.tool_s for turn in calls] == pytest.approx([TOOL_S] * 3)
    assert [turn.command for turn in calls] == ["bash:mkdir", "bash:pwd", "bash:ls"]
    assert answer.command == ""
    assert run.sources == ("scripted-right",)
    assert [(g.right, g.seconds) for turn in run.guesses for g in turn] == [(True, pytest.approx(PREDICTION_S))] * 12
    assert run.cost.step(1, 0.0) == pytest.approx(TOKEN_S, rel=0.05)
    assert run.cost.step(0, 0.0, 1) == pytest.approx(FIRST_S, rel=0.05)


def test_the_simulation_meets_what_the_run_measured(folder: Path) -> None:
    plan = Plan(read_run(folder), PlanSettings(rollouts=8))
    own = plan.recorded()
    assert own is not None
    assert plan.sequential().agent_s == pytest.approx(plan.run.sequential_s, rel=0.03)
    assert own.figures.agent_s == pytest.approx(plan.run.speculative_s, rel=0.03)
    assert own.figures.match == 1


def test_lines_are_sources_by_depth_by_breadth(folder: Path) -> None:
    plan = Plan(read_run(folder), PlanSettings(depths=(1, 3), rollouts=8, assumed=Assumed(0.5, 0.2)))
    lines = list(plan.lines())
    assert [(line.sources, line.guarded, line.depth) for line in lines] == [
        ((source,), guarded, depth)
        for source in ("scripted-right", "assumed")
        for guarded in (False, True)
        for depth in (1, 3)
    ]
    sequential = plan.sequential()
    assert lines[0].figures.reduction(sequential)[0] > lines[4].figures.reduction(sequential)[0] > 0


def test_calls_sent_ahead_hide_the_way_and_not_what_runs_in_the_sandbox(folder: Path) -> None:
    """Three calls of 2 s are under way together; those that run in the sandbox for 2 s still follow each other."""
    run = read_run(folder)
    settings = PlanSettings(depths=(3,), guarded=(True,), rollouts=8)

    def agent_s(way_s: float) -> float:
        rollouts = tuple(tuple(replace(t, way_s=min(t.tool_s, way_s)) for t in turns) for turns in run.rollouts)
        plan = Plan(replace(run, rollouts=rollouts), settings)
        figures = next(iter(plan.lines())).figures
        assert figures.sent == pytest.approx(figures.ran)
        return figures.agent_s

    observed = Plan(run, replace(settings, guarded=(False,)))
    assert next(iter(observed.lines())).figures.agent_s > 3 * TOOL_S
    assert agent_s(0.0) > 3 * TOOL_S  # busy sandbox
    assert agent_s(TOOL_S) < 2.6 * TOOL_S


def test_a_run_whose_calls_were_sent_ahead_knows_how_long_they_take(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", {**CONFIG, "guarded": True, "depth": 3, "latency": "1.5"})
    for result in rollouts(None, 4):
        run.append("sequential", result)
    for result in rollouts(Move.RIGHT, 4):
        cut = [replace(turn, tool_end_s=turn.tool_start_s) for turn in result.trajectory.turns]
        run.append("speculative", replace(result, trajectory=replace(result.trajectory, turns=cut)))
    read = read_run(run.path)
    calls = [turn for turns in read.rollouts for turn in turns if turn.command]
    assert {(round(turn.tool_s, 6), turn.way_s) for turn in calls} == {(TOOL_S, 1.5)}
    own = Plan(read, PlanSettings(rollouts=4)).recorded()
    assert own is not None
    assert own.guarded


def test_another_tool_latency_is_not_compared_with_the_measurement(folder: Path) -> None:
    plan = Plan(slower(read_run(folder), 4.0), PlanSettings(rollouts=8))
    assert plan.recorded() is None
    assert plan.sequential().tool_s == pytest.approx(3 * 4.0)


def test_a_run_without_speculation_needs_an_assumed_source(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", CONFIG)
    run.append("sequential", rollouts(None, 1)[0])
    with pytest.raises(ConfigError, match="--match"):
        list(Plan(read_run(run.path)).lines())
    lines = list(Plan(read_run(run.path), PlanSettings(rollouts=4, assumed=Assumed(0.9, 0.1))).lines())
    assert {line.sources for line in lines} == {("assumed",)}


def test_a_folder_that_is_none_and_a_damaged_line_are_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match="no run folder"):
        read_run(tmp_path / "nothing")
    file = folder / "rollouts.jsonl"
    lines = file.read_text().splitlines()
    torn = json.dumps({"arm": "sequential"})
    file.write_text("\n".join([*lines, lines[0][:100]]))  # still being written
    assert len(read_run(folder).rollouts) == 4
    file.write_text("\n".join([torn, *lines]) + "\n")
    with pytest.raises(ConfigError, match="line 1 of"):
        read_run(folder)
