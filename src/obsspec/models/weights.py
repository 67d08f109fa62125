"""The weights of a GGUF file as float32 arrays under their Hugging Face names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf
import numpy as np

from obsspec.models.base import base_model_path
from obsspec.models.gguf_metadata import read_metadata
from obsspec.models.layout import FloatArray, deinterleave, hf_name, rotary_heads


class GgufWeights(Mapping[str, FloatArray]):
    """Dequantised when asked for, so that one matrix at a time is in memory. Shapes are [out, in] or [width]."""

    def __init__(self, path: Path) -> None:
        self._metadata = read_metadata(path)  # first: it refuses what is not GGUF
        self._tensors = {hf_name(tensor.name): tensor for tensor in gguf.GGUFReader(path).tensors}

    def __getitem__(self, name: str) -> FloatArray:
        tensor = self._tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        heads = rotary_heads(tensor.name, self._metadata)
        return values if heads is None else deinterleave(values, heads)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def load_weights(path: Path | None = None) -> dict[str, FloatArray]:
    """A whole state dict, by default the base model's: 135M parameters, 540 MB. `lm_head` is tied and left out."""
    return dict(GgufWeights(path or base_model_path()))
