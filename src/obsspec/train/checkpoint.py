# pyright: basic, reportMissingImports=false
"""The checkpoint of a training loop as a file: whole or not at all, and told from the file of something else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

import torch

from obsspec.rollout.disk import to_disk
from obsspec.values import ConfigError


def save_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """On disk when this returns. Raises `ConfigError` where there is no room; the one before it is kept."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            torch.save(dict(content), file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        to_disk(path.parent)
    except (OSError, RuntimeError) as error:  # the latter is what torch makes of a full disk
        part.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else "no room"
        raise ConfigError(f"can not write {path} ({reason}): free some space there, the same command goes on") from None


def load_checkpoint(path: Path, *wanted: str) -> dict[str, Any]:
    """What was saved, with these entries. Raises `ConfigError`."""
    try:
        content = torch.load(path, weights_only=True) if is_zipfile(path) else None
    except (OSError, RuntimeError, UnpicklingError):
        content = None
    if not isinstance(content, dict) or not content.keys() >= set(wanted):
        raise ConfigError(f"{path} is no checkpoint of this command: give another folder")
    return content
