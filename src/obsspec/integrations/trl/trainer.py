# pyright: basic, reportMissingImports=false
"""`GRPOTrainer` with importance ratios against the logprobs that were recorded when the tokens were sampled.

TRL takes the logprobs of a rollout function and, where it does not run vLLM itself, leaves them out of the loss: its
ratio compares the trainer's model with itself and is 1. Sampled by another engine, with rounded weights, or a
version earlier, the tokens come from another distribution than that.
"""

from __future__ import annotations

from typing import Any

from trl import GRPOTrainer

from obsspec.integrations.trl.versions import check_trl
from obsspec.values import ConfigError


class RecordedGRPOTrainer(GRPOTrainer):
    """For use with a rollout function; all else is TRL's. Needs temperature 1, at which logprobs are recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_trl()
        super().__init__(*args, **kwargs)
        if self.temperature != 1.0:
            raise ConfigError(f"logprobs are recorded at temperature 1: set temperature=1.0, not {self.temperature}")

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        out = super()._generate_and_score_completions(inputs)
        out["old_per_token_logps"] = out["sampling_per_token_logps"]
        return out
