"""Texts with holes: an answer in which what came from the arguments is replaced by where it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_ANSWER = 20_000  # longer answers are no filled-in template
_MAX_VALUES = 40  # arguments beyond these are not looked for


@dataclass(frozen=True, slots=True)
class Template:
    """`parts` alternate: literal text, name of a hole, literal text, ... ; the last is literal text."""

    parts: tuple[str, ...]

    @property
    def holes(self) -> tuple[str, ...]:
        return self.parts[1::2]

    def fill(self, values: Mapping[str, str]) -> str | None:
        """The text with every hole filled; None if a value is missing."""
        if any(name not in values for name in self.holes):
            return None
        return "".join(values[part] if index % 2 else part for index, part in enumerate(self.parts))


def hole_values(leaves: Mapping[str, object]) -> dict[str, str]:
    """Named scalars as they would be spelled in a text; numbers and flags as JSON spells them."""
    spelled: dict[str, str] = {}
    for name, value in list(leaves.items())[:_MAX_VALUES]:
        text = value if isinstance(value, str) else json.dumps(value)
        if text and len(text) <= 500:
            spelled[name] = text
    return spelled


def abstract(text: str, values: Mapping[str, str]) -> Template:
    """`text` with every whole occurrence of a value made a hole; longer values first, one name for each value."""
    if len(text) > MAX_ANSWER:
        return Template((text,))
    names: dict[str, str] = {}
    for name, value in values.items():
        names.setdefault(value, name)
    found = [value for value in names if value in text]
    if not found:
        return Template((text,))
    alternatives = "|".join(re.escape(value) for value in sorted(found, key=len, reverse=True))
    pieces = re.split(rf"(?<!\w)({alternatives})(?!\w)", text)
    return Template(tuple(names[piece] if index % 2 else piece for index, piece in enumerate(pieces)))
