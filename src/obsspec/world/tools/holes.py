"""Texts with holes: an answer in which what came from the call, or from earlier answers, is told by where it came from.

What stands in a hole may have several explanations: every name that had this value, and that it always stands there.
More examples leave fewer of them. A hole is filled only when all that are left agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_ANSWER = 20_000  # longer answers are no filled-in template
_MAX_VALUES = 60  # values beyond these are not looked for
_MAX_HOLES = 40
_MAX_LENGTH = 500  # characters of a value
_CONSTANT = "="  # the explanation "=x": it is always x

Explanations = frozenset[str]


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts with a hole between each two."""

    texts: tuple[str, ...]
    holes: tuple[Explanations, ...] = ()

    def fill(self, values: Mapping[str, str]) -> str | None:
        """The text; None if a hole has no value, or explanations that disagree."""
        parts = [self.texts[0]]
        for explanations, text in zip(self.holes, self.texts[1:], strict=True):
            found = {_value(name, values) for name in explanations} - {None}
            if len(found) != 1:
                return None
            parts += [found.pop() or "", text]
        return "".join(parts)

    def meet(self, text: str, values: Mapping[str, str]) -> Template | None:
        """What explains this text too; None if nothing does."""
        if not self.holes:
            return self if text == self.texts[0] else None
        if not text.startswith(self.texts[0]):
            return None
        place, holes = len(self.texts[0]), list[Explanations]()
        for hole, after in zip(self.holes, self.texts[1:], strict=True):
            fitting = {name: value for name in hole if (value := _value(name, values)) is not None}
            found = [value for value in fitting.values() if text.startswith(value + after, place)]
            if not found:
                return None
            part = max(found, key=len)
            holes.append(frozenset(name for name, value in fitting.items() if value == part))
            place += len(part) + len(after)
        return Template(self.texts, tuple(holes)) if place == len(text) else None

    def uses(self, name: str) -> bool:
        """Nothing but this value explains one of the holes."""
        return any(
            explanations - {name} <= _constants(explanations) and name in explanations for explanations in self.holes
        )

    @property
    def varies(self) -> bool:
        """Not the same text for every call."""
        return any(not _constants(hole) for hole in self.holes)


def abstract(text: str, values: Mapping[str, str]) -> Template:
    """`text` with every whole occurrence of a value made a hole; longer values first."""
    names: dict[str, set[str]] = {}
    for name, value in values.items():
        if value in text:
            names.setdefault(value, set()).add(name)
    if not names or len(text) > MAX_ANSWER:
        return Template((text,))
    alternatives = "|".join(re.escape(value) for value in sorted(names, key=len, reverse=True))
    pieces = re.split(rf"(?<!\w)({alternatives})(?!\w)", text)
    if len(pieces) > 2 * _MAX_HOLES:
        return Template((text,))
    holes = tuple(frozenset({*names[piece], _CONSTANT + piece}) for piece in pieces[1::2])
    return Template(tuple(pieces[::2]), holes)


def spellings(scalars: Mapping[str, object]) -> dict[str, str]:
    """Named scalars as they would stand in a text; numbers and flags as JSON has them.

    Numbers are also there as floats, whole ones also without a point.
    """
    spelled: dict[str, str] = {}
    for name, value in list(scalars.items())[:_MAX_VALUES]:
        text = value if isinstance(value, str) else json.dumps(value)
        if text and len(text) <= _MAX_LENGTH:
            spelled[name] = text
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
            spelled[f"{name}:float"] = str(float(value))
            if value == int(value):
                spelled[f"{name}:whole"] = str(int(value))
    return spelled


def _value(name: str, values: Mapping[str, str]) -> str | None:
    return name[1:] if name.startswith(_CONSTANT) else values.get(name)


def _constants(explanations: Explanations) -> Explanations:
    return frozenset(name for name in explanations if name.startswith(_CONSTANT))
