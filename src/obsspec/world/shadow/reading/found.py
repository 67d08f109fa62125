"""Collects facts, with paths made absolute."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field

from obsspec.world.shadow.facts import Absent, Complete, Exists, Fact, Kind, Known, NoProgram, Ordered

LONGEST = 300  # characters of a path


@dataclass(slots=True)
class Found:
    directory: str
    facts: list[Fact] = field(default_factory=list["Fact"])

    def path(self, name: str) -> str:
        return "/" + posixpath.normpath(posixpath.join(self.directory, name)).lstrip("/")

    def exists(self, name: str, known: Known = Known()) -> None:  # noqa: B008 - immutable
        if not name or len(name) > LONGEST or "\0" in name or "//" in name:
            return
        if known.kind is None and name.endswith("/") and len(name) > 1:
            known = Known(Kind.DIRECTORY)
        self.facts.append(Exists(self.path(name), known))

    def absent(self, name: str) -> None:
        if name and len(name) <= LONGEST and "*" not in name:
            self.facts.append(Absent(self.path(name)))

    def complete(self, name: str, kinds: Iterable[Kind], *, hidden: bool, below: bool) -> None:
        self.facts.append(Complete(self.path(name), frozenset(kinds), hidden, below))

    def ordered(self, names: Iterable[str]) -> None:
        paths = tuple(self.path(name) for name in names)
        if len(paths) > 1:
            self.facts.append(Ordered(paths))

    def no_program(self, name: str) -> None:
        self.facts.append(NoProgram(name))
