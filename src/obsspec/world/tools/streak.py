"""How long a template has held for ever new calls."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from obsspec.world.tools.holes import Template, abstract

_MAX_SHOWN = 64


@dataclass(slots=True)
class Streak:
    """`template` explains all answers in a row to the calls in `shown`."""

    template: Template
    shown: set[Hashable] = field(default_factory=set[Hashable])

    @property
    def length(self) -> int:
        return len(self.shown)

    @property
    def bucket(self) -> int:
        """The length in classes: 1, 2, 3, 4 to 7, 8 and more."""
        return self.length if self.length < 4 else 4 if self.length < 8 else 8

    def see(self, text: str, values: Mapping[str, str], call: Hashable) -> None:
        """Goes on if the template explains this answer, starts again from it if not."""
        met = self.template.meet(text, values)
        if met is None:
            self.shown.clear()
        self.template = abstract(text, values) if met is None else met
        if len(self.shown) < _MAX_SHOWN:
            self.shown.add(call)
