"""Files with absolute paths, for forks that have a root directory of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from obsspec.sandbox import identity
from obsspec.sandbox.channel import Frame
from obsspec.sandbox.inside import fields as wire
from obsspec.sandbox.spec import EntryKind
from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """One path of a tree. Missing parents are made, with the same owner; what is in the way is replaced.

    `content`: bytes of a file, target of a link. `mode` None: 0644, or 0755 for a directory. `mtime_ns` None: the
    logical time of the last command.
    """

    path: str
    content: bytes = b""
    mode: int | None = None
    kind: EntryKind = EntryKind.FILE
    owned_by_root: bool = True
    mtime_ns: int | None = None

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or ".." in self.path.split("/") or "\0" in self.path:
            raise ConfigError(f"the path {self.path!r} is not absolute: write /directory/name")
        if self.kind is EntryKind.OTHER:
            raise ConfigError(f"{self.path} is neither file, directory nor link: place one of these")


def placing(files: Sequence[PlacedFile]) -> Frame:
    """The request that lays down `files` in order."""
    return [b"write", wire.number(len(files)), *(field for file in files for field in _fields(file))]


def _fields(file: PlacedFile) -> Frame:
    usual = 0o755 if file.kind is EntryKind.DIRECTORY else 0o644
    owner = 0 if file.owned_by_root or not identity.two_users() else identity.UID
    return [
        os.fsencode(file.path),
        file.kind.encode(),
        wire.number(usual if file.mode is None else file.mode),
        wire.number(owner),
        b"" if file.mtime_ns is None else wire.number(file.mtime_ns),
        file.content,
    ]
