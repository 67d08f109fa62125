"""What every hypothesis about tools can do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from obsspec.world.tools.seen import Asked
from obsspec.world.tools.trust import Claim


class Hypothesis(Protocol):
    """One idea of how answers come about. Deterministic, no I/O; `claims` changes nothing."""

    def claims(self, asked: Asked) -> Iterable[Claim]:
        """What the answer may be, best first; nothing where the idea does not apply."""
        ...

    def learn(self, asked: Asked, text: str) -> None:
        """The answer was `text`."""
        ...
