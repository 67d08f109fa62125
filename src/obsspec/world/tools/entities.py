"""Objects with an id: what a rollout has seen of them, and what rollouts of any kind see of them first."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

from obsspec.values import ToolCall
from obsspec.world.tools.seen import Asked, read_json

Key = tuple[str, str]  # the field that holds the id, and the id

_MAX_OBJECTS = 50_000


@dataclass(frozen=True, slots=True)
class Known:
    """An object as `tool` showed it. `fresh`: no other call of another tool came after that in this rollout.

    `where` it was seen: here, in another rollout of the image, or only in rollouts of other images ("elsewhere").
    """

    value: dict[str, Any]
    tool: str
    fresh: bool = True
    where: str = "here"


_Sight = tuple[dict[str, Any], str]  # the object, and the tool that showed it


@dataclass(slots=True)
class Entities:
    """Which argument of a tool is the id of the object that it answers with, and first sights of objects."""

    _ids: dict[tuple[str, tuple[str, ...]], Key] = field(default_factory=dict[tuple[str, tuple[str, ...]], Key])
    _first: dict[tuple[str, Key], _Sight] = field(default_factory=dict[tuple[str, Key], _Sight])

    def key_of(self, call: ToolCall) -> Key | None:
        """The object that the call is about, if its tool answered with objects before: (field, id)."""
        known = self._ids.get(_shape(call))
        if known is None:
            return None
        argument, name = known
        value = call.arguments.get(argument)
        return (name, value) if isinstance(value, str) else None

    def find(self, asked: Asked, key: Key) -> Known | None:
        """What is known of the object when the call is made."""
        fresh = True
        for seen in reversed(asked.before):
            value = read_object(seen.text)
            if value is not None and value.get(key[0]) == key[1]:
                return Known(value, seen.call.name, fresh)
            fresh = fresh and key[1] not in seen.call.arguments.values()
        for where, image in (("image", asked.image), ("elsewhere", "")):
            sight = self._first.get((image, key))
            if sight is not None:
                return Known(*sight, fresh, where)
        return None

    def learn(self, asked: Asked, value: dict[str, Any]) -> None:
        """The call was answered with the object `value`."""
        for argument, given in asked.call.arguments.items():
            named = [name for name, inner in value.items() if inner == given and isinstance(given, str) and given]
            if named:
                best = argument if argument in named else named[0]
                self._ids.setdefault(_shape(asked.call), (argument, best))
                key = (best, str(given))
                untouched = all(given not in seen.call.arguments.values() for seen in asked.before)
                if len(asked.call.arguments) == 1 and untouched and len(self._first) < _MAX_OBJECTS:
                    self._first[asked.image, key] = self._first["", key] = (value, asked.call.name)
                return


def read_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is."""
    value = read_json(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


_SPELLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
    {"ensure_ascii": False, "separators": (",", ":")},
    {"indent": 2},
    {"indent": 4},
    {"indent": 2, "ensure_ascii": False},
)


def write_like(value: Any, example: str) -> str | None:
    """`value` as JSON in the spelling of another text; None if that spelling is not known."""
    known = read_json(example)
    for options in _SPELLINGS:
        if json.dumps(known, **options) == example:
            return json.dumps(value, **options)
    return None


def _shape(call: ToolCall) -> tuple[str, tuple[str, ...]]:
    return call.name, tuple(sorted(call.arguments))
