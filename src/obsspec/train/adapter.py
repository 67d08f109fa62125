# pyright: basic, reportMissingImports=false
"""What a model in training has learnt as a file, and loading such a file into a model."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from obsspec.models.adapter import FORMAT, WHOLE, Adapter
from obsspec.models.base import base_model_path
from obsspec.train.llama import Llama
from obsspec.values import ConfigError


def save_adapter(model: Llama, path: Path) -> None:
    """Write what is trained in float16, in one step: a reader sees the old file or the new one.

    Raises `ConfigError` where there is no room.
    """
    tensors = {name: t.to(torch.float16) for group in model.groups() for name, t in group.tensors().items()}
    lora = {"format": FORMAT, "alpha": str(model.alpha), "rank": str(model.rank)}
    part = path.with_suffix(".part")
    try:
        save_file(tensors, part, lora if model.rank else {"format": WHOLE})
    except SafetensorError as error:
        raise ConfigError(f"can not write {path} ({error}): free some space there") from None
    part.chmod(0o644)
    part.replace(path)


def model_of(adapter: Adapter, dtype: torch.dtype, *, whole: bool = False) -> Llama:
    """The base model with this adapter, which is trained on; `whole`: merged into matrices that are trained themselves.

    Raises `ConfigError` for whole matrices that are to be trained as an adapter.
    """
    rank = 0 if whole else rank_of(adapter)
    model = Llama(base_model_path(), rank=rank, alpha=adapter.scale * rank, dtype=dtype)
    apply_adapter(model, adapter)
    return model


def rank_of(adapter: Adapter) -> int:
    if adapter.whole:
        raise ConfigError("the weights are whole matrices, not an adapter: give an adapter, or train with --full")
    return next(t.shape[0] for name, t in adapter.tensors.items() if name.endswith(".lora_A"))


def apply_adapter(model: Llama, adapter: Adapter) -> None:
    """Load the factors and fold them in; into a new model without adapters, merge them.

    Raises `ConfigError` when the model was built for other adapters.
    """
    if not model.rank:
        for group in model.groups():
            before = {name: tensor.numpy() for name, tensor in group.tensors().items()}
            group.load({name: torch.from_numpy(adapter.merged(name, values)) for name, values in before.items()})
    else:
        if rank_of(adapter) != model.rank or adapter.scale != model.alpha / model.rank:
            raise ConfigError(f"the adapter has rank {rank_of(adapter)}, scale {adapter.scale}: build the model for it")
        factors = {name: torch.tensor(values) for name, values in adapter.tensors.items()}
        for group in model.groups():
            group.load(factors)
    model.merge()
