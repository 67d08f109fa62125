"""What a sandbox starts from and what a verifier reads from it: data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from obsspec.values import Observation, ToolCall

HOME = "/home/user"  # working directory at the start; all paths of a spec and of a tree are relative to it


@dataclass(frozen=True, slots=True)
class FileSpec:
    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Set-up as data: directories and files under HOME, then commands run in order by the set-up (not the policy)."""

    directories: tuple[str, ...] = ()
    files: tuple[FileSpec, ...] = ()
    setup: tuple[str, ...] = ()
    image: str = ""  # identity of the starting state, e.g. the task id


class EntryKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the tree. `content`: bytes of a file, target of a link; empty otherwise. `mode`: permission bits."""

    kind: EntryKind
    mode: int
    content: bytes = b""


Tree = Mapping[str, Entry]


class TerminalSandbox(Protocol):
    """A sandbox whose file tree can be read from outside, for verifiers."""

    async def execute(self, call: ToolCall) -> Observation: ...

    async def tree(self) -> Tree:
        """Every path under HOME. Read from outside the sandbox's shell, after all committed commands."""
        ...
