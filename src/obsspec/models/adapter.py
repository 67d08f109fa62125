"""An adapter file, and its effect on a weight: a LoRA, or whole matrices that take the place of the base model's.

safetensors with `{module}.lora_A` [rank, in] and `{module}.lora_B` [out, rank] in the Hugging Face layout, for example
`model.layers.0.self_attn.q_proj.lora_A`; metadata: format, rank, alpha. Whole matrices are `{module}.weight` [out, in];
metadata: format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from obsspec.models.layout import FloatArray
from obsspec.values import ConfigError

FORMAT, WHOLE = "obsspec-lora-1", "obsspec-weights-1"


@dataclass(frozen=True, slots=True)
class Adapter:
    tensors: Mapping[str, FloatArray]
    scale: float  # alpha / rank
    whole: bool = False

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(name.rpartition(".")[0] for name in self.tensors)

    def merged(self, weight_name: str, weight: FloatArray) -> FloatArray:
        """W + alpha/rank * B A, or what takes the place of W; a weight that is not adapted as it is."""
        module = weight_name.removesuffix(".weight")
        if module not in self.modules:
            return weight
        if self.whole:
            return self.tensors[weight_name]
        low, high = self.tensors[f"{module}.lora_A"], self.tensors[f"{module}.lora_B"]
        return (weight + self.scale * (high @ low)).astype(np.float32, copy=False)


def read_adapter(path: Path) -> Adapter:
    """Raises `ConfigError` for a file that is missing, of another format, or with half a pair."""
    try:
        metadata, tensors = _read(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} is not a readable adapter ({error}): give another file") from None
    if metadata.get("format") == WHOLE:
        return Adapter(tensors, 0.0, whole=True)
    if metadata.get("format") != FORMAT:
        raise ConfigError(f"{path} has adapter format {metadata.get('format')}, supported is {FORMAT}")
    adapter = Adapter(tensors, float(metadata["alpha"]) / int(metadata["rank"]))
    wanted = {f"{module}.lora_{half}" for module in adapter.modules for half in "AB"}
    if wanted != tensors.keys():
        raise ConfigError(f"{path} lacks {sorted(wanted ^ tensors.keys())[0]}: write the adapter again")
    return adapter


def _read(path: Path) -> tuple[dict[str, str], dict[str, FloatArray]]:
    opened: Any = safe_open(path, "numpy")  # its stubs are untyped
    with opened as file:
        names: list[str] = list(file.keys())
        return file.metadata() or {}, {name: file.get_tensor(name).astype(np.float32) for name in names}
