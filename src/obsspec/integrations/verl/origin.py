"""Where a rollout comes from: its step, its place in the batch, and whether it is one of validation.

verl's workers know, and do not tell their agent loops. So they are made to remember it for the rollout's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class Origin:
    """`step`: the trainer's, -1 if it names none. (`index`, `number`) tell the rollouts of a worker's step apart."""

    step: int
    index: str
    number: int
    validate: bool


_TRAJECTORY: ContextVar[Mapping[str, Any]] = ContextVar("obsspec_verl_trajectory")


def remember_origins(worker: Any) -> None:
    """Makes an agent-loop worker class remember where each of its rollouts comes from. Done twice, it is done once."""
    run = worker._run_agent_loop
    if getattr(run, "__wrapped__", None) is not None:
        return

    @wraps(run)
    async def remembering(self: Any, sampling_params: Any, trajectory: Mapping[str, Any], **sample: Any) -> Any:
        token = _TRAJECTORY.set(trajectory)
        try:
            return await run(self, sampling_params, trajectory, **sample)
        finally:
            _TRAJECTORY.reset(token)

    worker._run_agent_loop = remembering


def origin_of(sample: Mapping[str, Any]) -> Origin:
    """Of the rollout that the current task makes. Raises `ConfigError` where nobody remembered it."""
    trajectory = _TRAJECTORY.get(None)
    if trajectory is None:
        raise ConfigError(
            "agent loop field transitions: this worker does not tell whether a rollout is of validation; "
            "let verl load its plugin obsspec, and use verl's own agent-loop workers"
        )
    number = sample.get("session_id", trajectory["rollout_n"])  # workers of the transfer queue number rollouts there
    step, index = int(trajectory["step"]), trajectory["sample_index"]
    index = index.item() if hasattr(index, "item") else index  # of a tensor, or NumPy's
    return Origin(step, str(index), int(number), bool(trajectory["validate"]))
