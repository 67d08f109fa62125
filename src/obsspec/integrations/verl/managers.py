# pyright: basic, reportMissingImports=false
"""verl's agent-loop managers, with what speculation did in the trainer's log.

verl logs a fixed set of fields, and drops what else a rollout says of itself. Which manager it uses is configuration:
`actor_rollout_ref.rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from obsspec.integrations.verl.statistics import FIELD, summary
from obsspec.integrations.verl.versions import check_verl

check_verl()

import transfer_queue  # noqa: E402 - after the sentence on versions
from verl.experimental.agent_loop import AgentLoopManager  # noqa: E402
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, PPOTrainer  # noqa: E402


class LoggingManager(AgentLoopManager):
    """For trainers that take a batch from the manager: `timing_s/agent_loop/obsspec/...`."""

    def _performance_metrics(self, metrics: Any, output: Any) -> dict[str, float]:
        timing = super()._performance_metrics(metrics, output)
        found = summary(output.non_tensor_batch.get(FIELD, ()))
        return timing | {f"agent_loop/{name}": value for name, value in found.items()}


class LoggingManagerTQ(AgentLoopManagerTQ):
    """For verl's default trainers, which take rollouts from the transfer queue: `obsspec/...`.

    They offer no place to add a metric. The manager lives in the trainer's process, and adds to what all trainers of
    that process compute of a step.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        log_statistics(PPOTrainer)


def log_statistics(trainer: Any) -> None:
    """Makes a trainer class compute our numbers too, once."""
    compute = trainer._compute_metrics
    if getattr(compute, "__wrapped__", None) is not None:
        return

    @wraps(compute)
    def with_statistics(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **options: Any) -> None:
        compute(self, batch, metrics, *args, **options)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        found = transfer_queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        metrics.update(summary(extra.get(FIELD) for extra in found.pop("extra_fields").tolist()))

    trainer._compute_metrics = with_statistics
