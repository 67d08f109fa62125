"""A disk whose power fails: of every file, what lies behind the last `fsync` is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


class Power:
    """Notes what each `os.fsync` makes durable, from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._durable: dict[int, int] = {}  # bytes of each inode
        self._fsync = os.fsync
        monkeypatch.setattr("os.fsync", self._noted)

    def fail(self, folder: Path, after: Path) -> int:
        """Copies a folder to `after` as it would be found. Returns how many bytes are missing."""
        lost = 0
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = after / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            size = file.stat().st_size
            durable = min(size, self._durable.get(file.stat().st_ino, 0))
            os.truncate(target, durable)
            lost += size - durable
        return lost

    def _noted(self, descriptor: int) -> None:
        self._fsync(descriptor)
        status = os.fstat(descriptor)
        self._durable[status.st_ino] = status.st_size
