"""Probes the trajectories of run folders and tasks, several at a time, and sums up what they show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from obsspec.sandbox.spec import SandboxSpec
from obsspec.tasks.environment import TaskEnvironment
from obsspec.values import ConfigError, Observation, ToolCall
from obsspec.worldeval.environments import environment_of
from obsspec.worldeval.probe import Opener, ProbeReport, probe
from obsspec.worldeval.runs import PROBE, RunRollouts

EXAMPLES = 3  # commands told for each cause


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The calls of one rollout, in order, with the numbers of their turns; observations where they were recorded."""

    task: str
    traj: str
    spec: SandboxSpec
    calls: tuple[ToolCall, ...]
    steps: tuple[int, ...]
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbedTrajectory:
    trajectory: Trajectory
    report: ProbeReport

    @property
    def as_recorded(self) -> list[bool]:
        """Of each command with a recorded observation: whether it was printed again, each time."""
        recorded = self.trajectory.observations
        return [
            all(output.text == observation.text for output in probed.outputs)
            for probed, observation in zip(self.report.commands, recorded, strict=False)
        ]


def trajectories(target: str, arm: str) -> Iterator[Trajectory]:
    """Those of a run folder, or the reference solution of a task of the suite. Raises `ConfigError`."""
    if Path(target).is_dir():
        yield from _of_run(Path(target), arm)
        return
    environment = environment_of(target, target)
    if not isinstance(environment, TaskEnvironment):
        raise ConfigError(f"{target} is neither a run folder nor a task of the suite, such as files-easy-9")
    commands = [command for step in environment.task.steps for command in (*step.acts[0], *step.reviews[:1])]
    calls = tuple(ToolCall("bash", {"command": command}) for command in commands)
    yield Trajectory(target, "", environment.task.spec, calls, tuple(range(len(calls))))


def _of_run(folder: Path, arm: str) -> Iterator[Trajectory]:
    run = RunRollouts(folder, arm)
    try:
        for entry in run.rollouts:
            environment = environment_of(entry.task, entry.task)
            if not isinstance(environment, TaskEnvironment):
                raise ConfigError(f"{folder}: {entry.task} is no task of the suite, so it can not be run again")
            turns = run.read(entry)
            yield Trajectory(
                task=entry.task,
                traj=entry.traj,
                spec=environment.task.spec,
                calls=tuple(call for turn in turns for call in turn.calls),
                steps=tuple(turn.step for turn in turns for _ in turn.calls),
                observations=tuple(observation for turn in turns for observation in turn.observations),
            )
    finally:
        run.close()


async def probe_all(
    found: Sequence[Trajectory], sandboxes: Opener, times: int, concurrency: int, advance: Callable[[], None]
) -> list[ProbedTrajectory]:
    """In the order of `found`. Raises what `probe` raises; cancelled: no sandbox is left."""
    slots = anyio.Semaphore(concurrency)
    done: dict[int, ProbedTrajectory] = {}

    async def one(number: int, trajectory: Trajectory) -> None:
        async with slots:
            report = await probe(trajectory.spec, trajectory.calls, sandboxes, times=times)
        done[number] = ProbedTrajectory(trajectory, report)
        advance()

    async with anyio.create_task_group() as tasks:
        for number, trajectory in enumerate(found):
            tasks.start_soon(one, number, trajectory)
    return [done[number] for number in range(len(found))]


def summarize(probed: Sequence[ProbedTrajectory]) -> dict[str, Any]:
    """`ceiling`: share of commands that printed the same each time. By cause: how many did not, and examples."""
    commands = [command for each in probed for command in each.report.commands]
    recorded = [equal for each in probed for equal in each.as_recorded]
    counts = Counter(command.cause for command in commands if command.cause is not None)
    return {
        "trajectories": len(probed),
        "commands": len(commands),
        "ceiling": sum(command.equal for command in commands) / len(commands) if commands else float("nan"),
        "as_recorded": sum(recorded) / len(recorded) if recorded else float("nan"),
        "causes": {
            cause.value: {
                "commands": count,
                "examples": list(dict.fromkeys(c.command for c in commands if c.cause is cause))[:EXAMPLES],
            }
            for cause, count in counts.most_common()
        },
    }


def equal_turns(probed: Sequence[ProbedTrajectory]) -> dict[str, dict[str, bool]]:
    """By rollout and turn: whether all its commands printed the same each time."""
    found: dict[str, dict[str, bool]] = {}
    for each in probed:
        turns = found.setdefault(each.trajectory.traj, {})
        for step, command in zip(each.trajectory.steps, each.report.commands, strict=True):
            turns[str(step)] = turns.get(str(step), True) and command.equal
    return found


def write_ceiling(folder: Path, probed: Sequence[ProbedTrajectory], facts: Mapping[str, Any]) -> None:
    """Leaves in the run folder what an evaluation of it shows as its ceiling. Raises `ConfigError`."""
    try:
        (folder / PROBE).write_text(json.dumps({**facts, "equal": equal_turns(probed)}) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can not write {folder / PROBE}: {error.strerror or error}") from error
