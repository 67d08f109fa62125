"""Whether two batches are the same batch to verl's trainer, and what speculation did for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from verl.protocol import DataProto

from obsspec.integrations.verl.statistics import FIELD

_OURS = frozenset({FIELD, "agent_name"})


def assert_equal(one: DataProto, other: DataProto) -> None:
    """All tensors, and all that travels beside them: turns, tool rewards, versions. Not the timings."""
    assert set(one.batch.keys()) == set(other.batch.keys())
    for name in one.batch.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
        assert torch.equal(one.batch[name], other.batch[name]), name
    assert one.non_tensor_batch.keys() - _OURS == other.non_tensor_batch.keys() - _OURS
    for name in one.non_tensor_batch.keys() - _OURS:
        assert _plain(one.non_tensor_batch[name]) == _plain(other.non_tensor_batch[name]), name


def totals(batch: DataProto) -> dict[str, float]:
    rollouts = list(batch.non_tensor_batch[FIELD])
    return {name: sum(rollout[name] for rollout in rollouts) for name in rollouts[0]}


def tool_turns(batch: DataProto) -> int:
    """Turns whose tools ran, of rollouts that ended with a final answer: verl counts both sides' turns and the end."""
    return sum((int(count) - 2) // 2 for count in batch.non_tensor_batch["__num_turns__"])


def _plain(values: np.ndarray[Any, Any]) -> list[Any]:
    return [value if not isinstance(value, np.ndarray) else value.tolist() for value in values.tolist()]
