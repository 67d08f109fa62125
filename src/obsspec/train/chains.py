"""Records of a transition log, both ways: a rollout is a chain of them, each with the tokens it adds to the one before.

start    what the rollout is of, and its prompt
turn     the action, the frames of its observations, where in them the observations are, and what is known of it
end      why it ended, and the reward
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from obsspec.rollout.collector import Job, RolloutResult
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.trace import SpeculationReport
from obsspec.tasks.task import Split
from obsspec.train.segments import Record
from obsspec.train.transitions import Ended, Transition, observation_ranges
from obsspec.values import Observation, Outcome, StopReason, Tokens, ToolCall

START, TURN, END = "start", "turn", "end"


def start_record(job: Job, prompt: Sequence[int]) -> Record:
    return {
        "kind": START,
        "task_id": job.environment.task_id,
        "image": job.environment.image,
        "group": job.group,
        "split": Split.TRAIN,
        "step": job.step,
        "ids": prompt,
    }


def turn_record(job: Job, trajectory: Trajectory, report: SpeculationReport | None, before: int) -> Record:
    """The last turn of a trajectory, of which the first `before` tokens are in the chain already."""
    turn, seen = trajectory.turns[-1], tuple(trajectory.ids)
    prompt, action = seen[:before], turn.completion.token_ids
    observed = turn.observations if turn.calls else ()
    ranges = observation_ranges(job.rules.renderer, prompt, action, observed, seen)
    attempts = report.attempts if report is not None else ()
    attempt = next((a for a in reversed(attempts) if a.level == turn.level), None)
    return {
        "kind": TURN,
        "level": turn.level,
        "action": action,
        "frames": seen[before + len(action) :],
        "targets": [(start - before, stop - before) for start, stop in ranges],
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in turn.calls],
        "observations": [_observation_to_record(observation) for observation in turn.observations],
        "policy_version": turn.completion.weight_version,
        "outcome": attempt.outcome if attempt is not None else None,
        "source": attempt.source if attempt is not None else "",
        "world_version": attempt.version if attempt is not None else "",
    }


def end_record(result: RolloutResult) -> Record:
    trajectory = result.trajectory
    return {"kind": END, "stop": trajectory.stop, "reward": result.verdict.reward, "error": trajectory.error}


def said(record: Record) -> str:
    """What makes two records of a rollout the same: their place, the tokens they add, and how it ended.

    Not how long they took, nor which weights sampled the same tokens.
    """
    names = ("kind", "after", "ids", "action", "frames", "stop", "reward", "error")
    return json.dumps([record.get(name) for name in names])


@dataclass(frozen=True, slots=True)
class Chain:
    """What the records of a rollout say, up to one of them."""

    start: Record
    ids: Tokens
    versions: tuple[str, ...]


def extended(before: Chain | None, record: Record) -> Chain:
    """With a start or a turn at its end."""
    if before is None:
        return Chain(record, tuple(record["ids"]), ())
    ids = (*before.ids, *record["action"], *record["frames"])
    return Chain(before.start, ids, (*before.versions, record["policy_version"]))


def transition_of(writer: str, offset: int, record: Record, before: int, chain: Chain) -> Transition:
    """`chain`: with the turn; `before`: tokens without it."""
    start = chain.start
    return Transition(
        rollout=record["rollout"],
        level=record["level"],
        step=start["step"],
        writer=writer,
        offset=offset,
        split=Split(start["split"]),
        task_id=start["task_id"],
        image=start["image"],
        group=start["group"],
        ids=chain.ids,
        action=(before, before + len(record["action"])),
        targets=tuple((before + begin, before + end) for begin, end in record["targets"]),
        calls=tuple(ToolCall(call["name"], MappingProxyType(call["arguments"])) for call in record["calls"]),
        observations=tuple(Observation(**fields) for fields in record["observations"]),
        policy_versions=chain.versions,
        outcome=None if record["outcome"] is None else Outcome(record["outcome"]),
        source=record["source"],
        world_version=record["world_version"],
    )


def ended_of(writer: str, offset: int, record: Record, before: Chain) -> Ended:
    return Ended(
        rollout=record["rollout"],
        step=before.start["step"],
        writer=writer,
        offset=offset,
        stop=StopReason(record["stop"]),
        reward=record["reward"],
        error=record["error"],
    )


def _observation_to_record(observation: Observation) -> Record:
    return {name: value for name, value in asdict(observation).items() if name != "raw"}
