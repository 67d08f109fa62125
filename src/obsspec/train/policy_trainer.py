# pyright: basic, reportMissingImports=false
"""GRPO on the packed Llama: TRL's trainer with our scoring, and with checkpoints that hold what it takes to go on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from obsspec.integrations.trl.trainer import RecordedGRPOTrainer
from obsspec.rollout.disk import to_disk
from obsspec.train.causal_lm import PackedCausalLM
from obsspec.values import ConfigError

COMPLETE = "complete"


class PackedGRPOTrainer(RecordedGRPOTrainer):
    """Without a KL term: rollouts of groups that were all rewarded alike have no gradient, and none is computed."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        self._taught = inputs["advantages"] != 0
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **options: Any
    ) -> tuple[Any, Any, None]:
        if not torch.is_grad_enabled():
            return *model.score(input_ids, attention_mask, logits_to_keep), None
        return *score_some(model, input_ids, attention_mask, logits_to_keep, self._taught), None

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        with _writing(self.args.output_dir):
            super()._save_checkpoint(*args, **options)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """None is wanted."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        (model or self.model).load_factors(Path(resume_from_checkpoint))


def score_some(model: Any, ids: Any, attended: Any, completion: int, taught: Any) -> tuple[Any, Any]:
    """`model.score`, with gradients only for rows in the mask `taught` [batch], or for the first if there is none."""
    taught = taught.clone()
    taught[0] |= not taught.any()
    parts = []
    for rows, wanted in ((taught, True), (~taught, False)):
        if rows.any():
            with torch.set_grad_enabled(wanted):
                parts.append((rows.nonzero().squeeze(1), model.score(ids[rows], attended[rows], completion)))
    order = torch.cat([rows for rows, _ in parts]).argsort()
    logps, entropies = (torch.cat([scores[i] for _, scores in parts])[order] for i in range(2))
    return logps, entropies


class MergeAfterStep(TrainerCallback):
    """The working weights follow the factors."""

    def __init__(self, model: PackedCausalLM) -> None:
        self._model = model

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._model.llama.merge()


class MarkComplete(TrainerCallback):
    """A checkpoint counts once everything of it is on disk, also after a power failure."""

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        with _writing(args.output_dir):
            to_disk(*(path for path in checkpoint.rglob("*") if path.is_file()), checkpoint)
            (checkpoint / COMPLETE).touch()
            to_disk(checkpoint, checkpoint.parent)


@contextmanager
def _writing(folder: str) -> Generator[None, None, None]:
    """Raises `ConfigError` where there is no room."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):  # torch's file format
            raise
        reason = error.strerror if isinstance(error, OSError) else "no room"
        raise ConfigError(
            f"can not write a checkpoint to {folder} ({reason}): free some space there, the same command goes on"
        ) from error


def last_complete(folder: Path) -> Path | None:
    """The checkpoint to go on from."""
    done = [path.parent for path in folder.glob(f"checkpoint-*/{COMPLETE}")]
    return max(done, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """After which it was made."""
    return int(checkpoint.name.rpartition("-")[2])
