"""The bound of hidden tool time, against timelines that can be drawn by hand."""

from __future__ import annotations

import pytest

from obsspec.compare.ideal import hidden_ideal, ideal_s
from obsspec.rollout.trajectory import Trajectory, TurnRecord
from obsspec.values import Completion, FinishReason, Observation, ToolCall

from .conftest import rollouts


def sequential(*turns: tuple[float, float]) -> Trajectory:
    """Turns of so many seconds of generation and of tool; no tool in the last one."""
    trajectory, now = Trajectory("task"), 0.0
    for level, (generate_s, tool_s) in enumerate(turns):
        calls = (ToolCall("bash"),) if tool_s else ()
        said = Completion((1,), (0.0,), FinishReason.STOP)
        start, now = now, now + generate_s
        tools = ((now,), (now + tool_s,)) if tool_s else ((), ())
        trajectory.turns.append(TurnRecord(level, said, calls, (Observation(""),) * len(calls), start, now, *tools))
        now += tool_s
    trajectory.end_s = now
    return trajectory


def test_with_guards_only_the_last_answer_is_waited_for() -> None:
    rollout = sequential((1, 2), (1, 2), (1, 2), (0.5, 0))
    assert ideal_s(rollout, guarded=True) == 5.0  # sent after 3 s of generation, answered 2 s later
    assert ideal_s(rollout, guarded=False) == 7.0  # one tool after the other
    assert hidden_ideal([rollout], guarded=True) == pytest.approx(4.5 / 6)
    assert hidden_ideal([rollout], guarded=False) == pytest.approx(2.5 / 6)


def test_long_generations_hide_everything() -> None:
    rollout = sequential((3, 2), (3, 2), (3, 0))
    assert ideal_s(rollout, guarded=True) == ideal_s(rollout, guarded=False) == 9.0
    assert hidden_ideal([rollout], guarded=False) == 1.0


def test_without_tools_there_is_nothing_to_hide() -> None:
    rollout = sequential((1, 0))
    assert ideal_s(rollout, guarded=True) == 1.0
    assert hidden_ideal([rollout], guarded=True) != hidden_ideal([rollout], guarded=True)  # not a number


def test_it_is_the_latency_of_a_sequential_run_without_its_tools_in_the_way() -> None:
    for result in rollouts(None):
        trajectory = result.trajectory
        assert trajectory.agent_s - trajectory.tool_s <= ideal_s(trajectory, guarded=True) + 1e-9
        assert ideal_s(trajectory, guarded=True) <= ideal_s(trajectory, guarded=False) < trajectory.agent_s
