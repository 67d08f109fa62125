"""A world-model trainer on the tiny Llama, as a process that can be killed: LOG OUT."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from obsspec.train.llama import Llama
from obsspec.train.versions import VersionFolder
from obsspec.train.world_settings import Order, WorldSettings
from obsspec.train.world_trainer import WorldTrainer
from tests.train.tiny import write_tiny


def tiny_world(
    log: Path,
    out: Path,
    *,
    order: Order = Order.STEP,
    patience_s: float = 20.0,
    full: bool = False,
    keep_every: int = 1,
) -> WorldTrainer:
    torch.manual_seed(0)
    out.mkdir(parents=True, exist_ok=True)
    model = Llama(write_tiny(out / "tiny.gguf"), rank=0 if full else 4, alpha=8.0, dtype=torch.float32)
    settings = WorldSettings(
        order=order,
        round=12,
        patience_s=patience_s,
        full=full,
        learning_rate=0.01,
        batch_tokens=200,
        keep_every=keep_every,
    )
    return WorldTrainer(model, log, out, VersionFolder(out / "versions", "world"), settings, say)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    tiny_world(Path(sys.argv[1]), Path(sys.argv[2]), order=Order.MIXED).run(lambda: False, follow=False)
    say("finished")
