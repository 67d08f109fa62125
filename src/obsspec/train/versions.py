"""Numbered versions of an adapter in a folder: each is there whole or not at all, and never changes.

Trainers publish, whoever serves follows; they share nothing but the folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from obsspec.models.adapter import read_adapter
from obsspec.rollout.disk import to_disk
from obsspec.train.live import LivePolicy
from obsspec.train.weights import Serving
from obsspec.values import ConfigError, EngineError

_log = logging.getLogger(__name__)

ADAPTER, MANIFEST = "adapter.safetensors", "manifest.json"


@dataclass(frozen=True, slots=True)
class Version:
    """`name` is the weight version of all that is sampled with it: role, number, and a digest of the adapter."""

    number: int
    name: str
    adapter: Path
    facts: Mapping[str, Any]  # what the trainer says of it: step, tokens, position in the log


class VersionFolder:
    """The versions of one `role` ("policy", "world")."""

    def __init__(self, path: Path, role: str) -> None:
        self.path, self.role = path, role

    def publish(self, number: int, write: Callable[[Path], None], facts: Mapping[str, Any]) -> Version:
        """Makes a version of the adapter that `write` writes to the path it is given.

        A number that is there already, from before a crash, is not written again. Raises `ConfigError` if it holds
        another adapter than it would now, or the folder cannot be written to.
        """
        target, part = self._place(number), self.path / f".{number:06d}.part"
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            write(part / ADAPTER)
            digest = _digest(part / ADAPTER)
            manifest = {"number": number, "name": f"{self.role}-{number:06d}-{digest[:8]}", "sha256": digest, **facts}
            (part / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            if (there := self.read(number)) is not None:
                shutil.rmtree(part)
                if there.facts["sha256"] != digest:
                    raise ConfigError(f"{target} holds another adapter: give the run another folder")
                return there
            to_disk(part / ADAPTER, part / MANIFEST, part)
            part.replace(target)
            to_disk(self.path)
        except OSError as error:
            raise ConfigError(f"cannot write {target} ({error.strerror}): free some space there") from None
        version = self.read(number)
        assert version is not None
        return version

    def read(self, number: int) -> Version | None:
        """None where there is none. Raises `ConfigError` for one that is damaged or of another role."""
        folder = self._place(number)
        try:
            facts: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            version = Version(number, facts["name"], folder / ADAPTER, facts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder} is damaged ({error}): remove it") from None
        if not version.name.startswith(f"{self.role}-"):
            raise ConfigError(
                f"{self.path} holds {version.name}, no version of the role {self.role!r}: give the folder of those"
            )
        return version

    def drop(self, number: int, unless: Callable[[int], bool]) -> None:
        """Forgets a version that nobody opens any more."""
        if not unless(number):
            shutil.rmtree(self._place(number), ignore_errors=True)

    def latest(self) -> Version | None:
        """The version of the highest number."""
        numbers = [int(p.name) for p in self.path.glob("[0-9]" * 6) if (p / MANIFEST).is_file()]
        return self.read(max(numbers)) if numbers else None

    def check(self) -> None:
        """Raises `ConfigError` for what is no folder of versions of this role; it may be empty as yet."""
        if not self.path.is_dir():
            raise ConfigError(f"{self.path} is no folder of versions")
        others = sorted(p.name for p in self.path.iterdir() if not p.name.startswith(".") and not p.name.isdigit())
        if others:
            inside = self.path / "versions"
            hint = f": give {inside}" if inside.is_dir() else ""
            raise ConfigError(f"{self.path} is no folder of versions, it holds {others[0]}{hint}")
        self.latest()

    def _place(self, number: int) -> Path:
        return self.path / f"{number:06d}"


async def follow(folder: VersionFolder, live: LivePolicy, serving: Serving, *, poll_s: float = 0.5) -> None:
    """Lets `live` serve the newest version whenever there is a newer one, until cancelled. Some may be skipped.

    One that does not open is skipped with a warning: the one before it stays current until the next.
    """
    skipped = ""
    while True:
        newest = await run_sync(folder.latest)
        if newest is not None and newest.name not in (live.weight_version, skipped):
            try:
                await live.publish(serving.open(newest.adapter, newest.name))
            except (ConfigError, EngineError) as error:
                skipped = newest.name
                _log.warning("%s is not served, %s stays: %s", skipped, live.weight_version, error)
        await anyio.sleep(poll_s)


def _digest(adapter: Path) -> str:
    """Of the factors: the order in which a file holds them may differ."""
    content = read_adapter(adapter)
    digest = hashlib.sha256(str(content.scale).encode())
    for name in sorted(content.tensors):
        digest.update(name.encode())
        digest.update(content.tensors[name].tobytes())
    return digest.hexdigest()
