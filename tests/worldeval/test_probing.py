"""What many probes add up to, and that an evaluation of the run takes its ceiling from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from obsspec.rollout.store import RunFolder
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError, Observation, ToolCall
from obsspec.worldeval.causes import Cause
from obsspec.worldeval.probe import Probed, ProbeReport
from obsspec.worldeval.probing import (
    ProbedTrajectory,
    Trajectory,
    equal_turns,
    probe_all,
    summarize,
    trajectories,
    write_ceiling,
)
from obsspec.worldeval.runs import RunRollouts

from ..compare.conftest import rollouts

Command = tuple[str, Sequence[str], Cause | None]  # what ran, what it printed each time, why that differs
CONFIG = {"format": "terminal", "tokenizer": "bundled"}


def probed(
    traj: str, *commands: tuple[str, Sequence[str], Cause | None], recorded: Sequence[str] = ()
) -> ProbedTrajectory:
    calls = tuple(ToolCall("bash", {"command": command}) for command, _, _ in commands)
    observations = tuple(map(Observation, recorded))
    trajectory = Trajectory("t", traj, SandboxSpec(), calls, tuple(range(len(calls))), observations)
    report = ProbeReport(tuple(Probed(c, tuple(map(Observation, texts)), cause) for c, texts, cause in commands))
    return ProbedTrajectory(trajectory, report)


FOUND = [
    probed("r0", ("pwd", ("/", "/"), None), ("date", ("1", "2"), Cause.TIME), recorded=["/", "1"]),
    probed("r1", ("date", ("3", "4"), Cause.TIME), ("uuidgen", ("a", "b"), Cause.RANDOM), ("ls", ("", ""), None)),
]


def test_shares_and_causes() -> None:
    figures = summarize(FOUND)
    assert (figures["trajectories"], figures["commands"], figures["ceiling"]) == (2, 5, 0.4)
    assert figures["as_recorded"] == 0.5
    assert figures["causes"] == {
        "time stamps": {"commands": 2, "examples": ["date"]},
        "random": {"commands": 1, "examples": ["uuidgen"]},
    }


def test_a_turn_is_equal_if_all_its_commands_are() -> None:
    both = replace(FOUND[1], trajectory=replace(FOUND[1].trajectory, steps=(0, 1, 1)))
    assert equal_turns([FOUND[0], both]) == {"r0": {"0": True, "1": False}, "r1": {"0": False, "1": False}}


def test_a_probed_run_knows_its_ceiling(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", CONFIG)
    run.append("sequential", rollouts(None, 1)[0])
    write_ceiling(run.path, [replace(FOUND[0], trajectory=replace(FOUND[0].trajectory, traj="task-0"))], {})
    data = RunRollouts(run.path, "sequential")
    assert [turn.replay_equal for turn in data.read(data.rollouts[0])] == [True, False, None]
    data.close()
    (run.path / "probe.json").write_text("{")
    with pytest.raises(ConfigError, match=r"probe\.json is damaged"):
        RunRollouts(run.path, "sequential")


def test_what_can_not_be_run_again_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a run folder nor a task"):
        list(trajectories("nothing-easy-1", "sequential"))
    run = RunFolder(tmp_path / "run", CONFIG)
    run.append("sequential", rollouts(None, 1)[0])
    with pytest.raises(ConfigError, match="task-0 is no task of the suite"):
        list(trajectories(str(run.path), "sequential"))


@pytest.mark.sandbox
def test_runs_and_tasks_are_run_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run", CONFIG)
    run.append("sequential", replace(rollouts(None, 1)[0], task_id="files-easy-9"))
    found = [*trajectories(str(run.path), "sequential"), *trajectories("files-easy-9", "sequential")]
    steps: list[None] = []
    done = anyio.run(probe_all, found, LocalSandboxes(), 2, 2, lambda: steps.append(None))
    assert len(steps) == len(done) == 2
    assert [command.command for command in done[0].report.commands] == ["mkdir d", "pwd", "ls"]
    assert [each.report.ceiling for each in done] == [1.0, 1.0]
    assert not all(done[0].as_recorded)  # the toy shell that recorded it has other files
