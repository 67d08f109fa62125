"""Rules that know what a sandbox starts from: the files that the set-up itself puts there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from posixpath import normpath
from typing import TYPE_CHECKING

from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.world.rules.model import Rules
from obsspec.world.rules.state import Directory, File, Node

if TYPE_CHECKING:
    from obsspec.rollout.collector import Environment

MAX_TEXT = 4000  # characters of a file whose content is known


@dataclass(frozen=True, slots=True)
class StartingRules:
    """Opens the one `rules` for each rollout. `spec_of` says what the sandbox of an environment starts from, if known.

    Nothing is known of a sandbox in which the set-up runs commands.
    """

    rules: Rules
    spec_of: Callable[[Environment], SandboxSpec | None]

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[Rules, None]:
        spec = self.spec_of(environment)
        if spec is not None and not spec.setup:
            self.rules.start_from(environment.image, start(spec))
        yield self.rules


def start(spec: SandboxSpec) -> dict[str, Node]:
    """What is at each path, relative to where the shell starts, which is "": all there is.

    Empty, so that nothing is known, if some path leads out of there.
    """
    nodes: dict[str, Node] = {normpath(file.path): _file(file) for file in spec.files}
    directories = {normpath(path) for path in spec.directories} - {"."}
    if any(path.split("/")[0] in ("", ".", "..") for path in (*directories, *nodes)):
        return {}
    inside: dict[str, set[str]] = {path: set() for path in ("", *directories)}
    for path in (*directories, *nodes):
        while path:
            above, _, name = path.rpartition("/")
            inside.setdefault(above, set()).add(name)
            path = above
    return nodes | {path: Directory(frozenset(names)) for path, names in inside.items()}


def _file(file: FileSpec) -> File:
    return File(_text(file.content) if file.mode & 0o400 else None, runs=bool(file.mode & 0o100))


def _text(content: bytes) -> str | None:
    """What programs would print of it as it is; None for anything else."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    plain = all(line.isprintable() for line in text.replace("\t", " ").split("\n"))
    return text if plain and len(text) <= MAX_TEXT else None
