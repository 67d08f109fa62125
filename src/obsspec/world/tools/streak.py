"""How long an idea has held for ever new arguments."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Idea = TypeVar("Idea")


@dataclass(slots=True)
class Streak(Generic[Idea]):
    """`idea` held for all arguments of `shown` in a row, the last time it was looked at."""

    idea: Idea
    shown: set[Hashable] = field(default_factory=set[Hashable])

    @property
    def length(self) -> int:
        return len(self.shown)

    def see(self, idea: Idea, arguments: Hashable) -> None:
        """Goes on if the idea is the same one, starts again if not."""
        if idea != self.idea:
            self.idea = idea
            self.shown.clear()
        if len(self.shown) < 64:
            self.shown.add(arguments)

    @property
    def bucket(self) -> int:
        """The length in classes: 1, 2, 3, 4 to 7, 8 and more."""
        return self.length if self.length < 4 else 4 if self.length < 8 else 8
