"""What is learnt of a tool's machine beside files: how its shell names itself, where it starts, what it lacks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from obsspec.world.rules.order import Order, observed

_SHELL_ERROR = re.compile(r"^(\S*(?:bash|sh)): line \d+: ", re.MULTILINE)
_NOT_FOUND = re.compile(r"^\S*(?:bash|sh): line \d+: (\S+): command not found$", re.MULTILINE)
_QUOTED = re.compile(r"^mkdir: cannot create directory (['‘])", re.MULTILINE)


@dataclass(slots=True)
class Habits:
    """Of one tool. Everything is None or empty until it has been seen."""

    shell: str | None = None  # "/bin/bash", as it begins the shell's own messages
    quote: str | None = None  # the opening quote of mkdir's messages
    order: Order | None = None  # how it sorts names
    missing: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # (image, program)
    starts: dict[str, str] = field(default_factory=dict[str, str])  # where shells of an image start
    start_counts: Counter[str] = field(default_factory=Counter[str])
    kept: int = 0  # how often a changed directory was still there in the next call
    reset: int = 0
    version: int = 0  # changes whenever something else does

    def learn(self, image: str, text: str) -> None:
        """Take in one output."""
        before = (self.shell, self.quote, len(self.missing))
        if "line " in text:
            for found in _SHELL_ERROR.finditer(text):
                self.shell = found[1]
            for found in _NOT_FOUND.finditer(text):
                self.missing.add((image, found[1]))
        if "mkdir: " in text:
            for found in _QUOTED.finditer(text):
                self.quote = found[1]
        self.version += before != (self.shell, self.quote, len(self.missing))

    def learn_listing(self, names: list[str]) -> None:
        """Take in a list that a program of the machine has sorted."""
        order = observed(names)
        if order is not None and order != self.order:
            self.order = order
            self.version += 1

    def learn_directory(self, *, kept: bool) -> None:
        """Whether the directory of the last call was still that of the next."""
        self.kept += kept
        self.reset += not kept
        self.version += 1

    def learn_start(self, image: str, directory: str) -> None:
        """Take in where a shell of `image` starts."""
        if image not in self.starts:
            self.starts[image] = directory
            self.start_counts[directory] += 1
            self.version += 1

    def start(self, image: str) -> str | None:
        """Where a shell of this image starts, if that is known or has been the same for all others."""
        known = self.starts.get(image)
        if known is not None or not self.start_counts:
            return known
        (directory, count), *others = self.start_counts.most_common(2)
        return directory if not others and count > 1 else None

    def stateful(self) -> bool | None:
        """Whether a shell keeps its directory from call to call."""
        if self.kept == self.reset:
            return None
        return self.kept > self.reset

    def quotes(self, name: str) -> str | None:
        """`name` in the quotes of mkdir; None before any have been seen."""
        if self.quote is None:
            return None
        return f"‘{name}’" if self.quote == "‘" else f"'{name}'"
