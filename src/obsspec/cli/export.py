"""`obsspec export`: the shipped model, or another adapter, as a folder for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from obsspec.cli.console import wide_console
from obsspec.models.hf_folder import write_hf_folder
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.values import ConfigError


def export(
    folder: Path,
    *,
    adapter: Annotated[Path | None, Parameter(help="Adapter to merge in (.safetensors); default: the shipped one.")] = (
        None
    ),
) -> None:
    """Write the model as a Hugging Face folder (float32, 540 MB) that vLLM and transformers load."""
    console = wide_console()
    try:
        with console.status("writing the model"):
            write_hf_folder(folder, adapter or shipped_adapter())
    except OSError as error:
        raise ConfigError(f"can not write {folder}: {error.strerror or error}") from error
    console.print(f"model folder: {folder}", highlight=False, markup=False)
