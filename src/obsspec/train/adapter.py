# pyright: basic, reportMissingImports=false
"""Writing the adapter of a model in training to a file, and loading one into a model."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from obsspec.models.adapter import FORMAT, Adapter
from obsspec.train.llama import Llama
from obsspec.values import ConfigError


def save_adapter(model: Llama, path: Path) -> None:
    """Write the factors in float16, in one step: a reader sees the old file or the new one."""
    factors = {name: t.to(torch.float16) for group in model.groups() for name, t in group.tensors().items()}
    part = path.with_suffix(".part")
    save_file(factors, part, {"format": FORMAT, "alpha": str(model.alpha), "rank": str(model.rank)})
    part.chmod(0o644)
    part.replace(path)


def rank_of(adapter: Adapter) -> int:
    return next(t.shape[0] for name, t in adapter.tensors.items() if name.endswith(".lora_A"))


def apply_adapter(model: Llama, adapter: Adapter) -> None:
    """Load the factors and fold them in. Raises `ConfigError` when the model was built for other adapters."""
    if rank_of(adapter) != model.rank or adapter.scale != model.alpha / model.rank:
        raise ConfigError(f"the adapter has rank {rank_of(adapter)}, scale {adapter.scale}: build the model for it")
    factors = {name: torch.tensor(values) for name, values in adapter.tensors.items()}
    for group in model.groups():
        group.load(factors)
    model.merge()
