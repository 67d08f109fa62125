"""The adapter file: safetensors with `{module}.lora_A` [rank, in] and `{module}.lora_B` [out, rank] in float16.

The merged weight is W + alpha/rank * B A, in the Hugging Face layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from obsspec.train.llama import Llama
from obsspec.values import ConfigError

FORMAT = "obsspec-lora-1"


@dataclass(frozen=True, slots=True)
class Adapter:
    tensors: dict[str, Tensor]
    rank: int
    alpha: float


def adapter_of(model: Llama) -> Adapter:
    tensors = {name: t for group in model.groups() for name, t in group.tensors().items()}
    return Adapter(tensors, model.rank, model.alpha)


def save_adapter(adapter: Adapter, path: Path) -> None:
    """Write the file in one step: a reader sees the old one or the new one."""
    half = {name: t.to(torch.float16).contiguous() for name, t in adapter.tensors.items()}
    metadata = {"format": FORMAT, "alpha": str(adapter.alpha), "rank": str(adapter.rank)}
    part = path.with_suffix(".part")
    save_file(half, part, metadata)
    part.replace(path)


def load_adapter(path: Path) -> Adapter:
    """Raises `ConfigError` for a file that is missing or of another format."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a readable adapter ({error}): give another file") from None
    if metadata.get("format") != FORMAT:
        raise ConfigError(f"{path} has adapter format {metadata.get('format')}, supported is {FORMAT}")
    return Adapter(tensors, int(metadata["rank"]), float(metadata["alpha"]))


def apply_adapter(model: Llama, adapter: Adapter) -> None:
    """Load the factors and fold them in. Raises `ConfigError` when the adapter has another rank or alpha."""
    if (adapter.rank, adapter.alpha) != (model.rank, model.alpha):
        raise ConfigError(f"adapter has rank {adapter.rank}, alpha {adapter.alpha}: build the model with these")
    for group in model.groups():
        group.load(adapter.tensors)
    model.merge()
