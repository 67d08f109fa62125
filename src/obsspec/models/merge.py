"""The file that the embedded engine serves: the base model, merged with an adapter, in Q8_0, made once and cached.

Q8_0 is the fastest type to prefill on a CPU and, unlike the Q4_1 that the package ships, changes the model's answers
hardly at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from obsspec.models.adapter import Adapter, read_adapter
from obsspec.models.base import base_model_path
from obsspec.models.export import Progress, write_gguf
from obsspec.models.layout import FloatArray
from obsspec.models.weights import GgufWeights
from obsspec.values import ConfigError

_RECIPE = "q8_0, partial characters unused, 1"  # change it whenever the same inputs give another file


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`version` identifies the weights by content; it becomes the weight version of everything sampled with them."""

    path: Path
    version: str


def served_model(
    adapter: Path | None = None, *, base: Path | None = None, progress: Progress | None = None
) -> ServedModel:
    """The cached Q8_0 file of `base` (by default the packaged one) with `adapter` merged in; takes seconds, once.

    Processes that want the same file at the same time all get it. Raises `ConfigError` when a file is unusable or the
    cache directory cannot be written.
    """
    base = base or base_model_path()
    version = _digest(_RECIPE, [base, *([adapter] if adapter else [])])
    path = cache_directory() / f"{base.stem.partition('.')[0]}-{version}.gguf"
    if not path.is_file():
        merged = merged_weights(base, read_adapter(adapter) if adapter else None)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_gguf(merged, path, like=base, progress=progress)
        except OSError as error:
            raise ConfigError(f"cannot write {path} ({error.strerror}): set OBSSPEC_CACHE to another place") from None
    return ServedModel(path, version)


def file_model(path: Path) -> ServedModel:
    """A GGUF file served as it is."""
    return ServedModel(path, _digest("as it is", [path]))


def cache_directory() -> Path:
    """`$OBSSPEC_CACHE`, by default `~/.cache/obsspec`."""
    return Path(os.environ.get("OBSSPEC_CACHE") or Path.home() / ".cache" / "obsspec")


def merged_weights(base: Path, adapter: Adapter | None) -> Mapping[str, FloatArray]:
    """The weights of a GGUF file with `adapter` merged in, float32, each made when it is asked for.

    Raises `ConfigError` for an adapter of another model.
    """
    return _Merged(GgufWeights(base), adapter)


class _Merged(Mapping[str, FloatArray]):
    def __init__(self, base: GgufWeights, adapter: Adapter | None) -> None:
        self._base = base
        self._adapter = adapter
        unknown = adapter.modules - {name.removesuffix(".weight") for name in base} if adapter else None
        if unknown:
            raise ConfigError(f"the adapter changes {min(unknown)}, which the base model lacks: use its own base")

    def __getitem__(self, name: str) -> FloatArray:
        weight = self._base[name]
        return self._adapter.merged(name, weight) if self._adapter else weight

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)


def _digest(recipe: str, files: list[Path]) -> str:
    digest = hashlib.sha256(recipe.encode())
    for path in files:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise ConfigError(f"cannot read model file {path} ({error.strerror})") from None
    return digest.hexdigest()[:16]
