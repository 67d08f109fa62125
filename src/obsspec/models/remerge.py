"""Merging one adapter after another into the served file: only the adapted matrices are written, the rest is copied.

The file is byte for byte that of `served_model`, made in a fraction of the time: what a new version of the weights
costs a training run at every step.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from obsspec.models.adapter import Adapter
from obsspec.models.base import base_model_path
from obsspec.models.gguf_metadata import read_metadata
from obsspec.models.layout import FloatArray, hf_name, interleave, rotary_heads
from obsspec.models.merge import served_model
from obsspec.models.weights import GgufWeights
from obsspec.values import ConfigError

_BLOCK = 32  # values that share a scale in Q8_0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the quantised matrix lies in the file, and how its rows are ordered there."""

    offset: int
    size: int
    heads: int | None


class Merger:
    """Holds the base model's matrices in memory (430 MB for the packaged one), as far as adapters have changed them."""

    def __init__(self, base: Path | None = None) -> None:
        """Raises `ConfigError` when the base is unusable or the cache directory cannot be written."""
        base = base or base_model_path()
        self._template = served_model(base=base).path
        self._weights = GgufWeights(base)
        self._held: dict[str, FloatArray] = {}
        metadata = read_metadata(base)
        self._places = {
            hf_name(tensor.name): _Place(
                int(tensor.data_offset), int(tensor.n_bytes), rotary_heads(tensor.name, metadata)
            )
            for tensor in gguf.GGUFReader(self._template).tensors
        }

    def write(self, adapter: Adapter, path: Path) -> None:
        """The served file of the base with this adapter; complete under its name or not there at all.

        Raises `ConfigError` for an adapter of another model, and `OSError` where the file cannot be written.
        """
        part = path.with_name(f".{path.name}.part")
        try:
            shutil.copyfile(self._template, part)
            with part.open("rb+") as file:
                for module in sorted(adapter.modules):
                    place, data = self._matrix(f"{module}.weight", adapter)
                    file.seek(place.offset)
                    file.write(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _matrix(self, name: str, adapter: Adapter) -> tuple[_Place, bytes]:
        if name not in self._places:
            raise ConfigError(f"the adapter changes {name}, which the base model lacks: use its own base")
        if name not in self._held:
            self._held[name] = self._weights[name]
        place, merged = self._places[name], adapter.merged(name, self._held[name])
        data = quantize(merged if place.heads is None else interleave(merged, place.heads)).tobytes()
        if len(data) != place.size:
            raise ConfigError(f"the adapter's {name} has another size than the base model's: use its own base")
        return place, data


def quantize(values: FloatArray) -> NDArray[np.uint8]:
    """Q8_0 blocks [values / 32, 34] of a matrix whose width is a multiple of 32: a float16 scale and 32 int8 each."""
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, _BLOCK)
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale == 0, np.float32(0), 1 / scale)
    out = np.empty((len(blocks), 2 + _BLOCK), np.uint8)
    out[:, :2] = scale.astype(np.float16).view(np.uint8)
    out[:, 2:] = _rounded(blocks * inverse).astype(np.int8).view(np.uint8)
    return out


def _rounded(values: FloatArray) -> FloatArray:
    """To the nearest integer, halves away from zero, as the engine's own quantiser does."""
    size = np.abs(values)
    whole = np.floor(size)
    size -= whole
    size += size
    np.floor(size, out=size)
    whole += size
    return np.copysign(whole, values, out=whole)
