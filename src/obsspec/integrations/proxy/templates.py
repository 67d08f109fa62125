"""What turns one JSON value into another, found from pairs of the two: how a client writes down what it was answered.

A template is the first explanation, from the most to the least likely, that is right for every pair. It is never
trusted: what it gives is compared, byte for byte, with what the client really sends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from obsspec.integrations.proxy.wire import canonical

Path = tuple[str | int, ...]
Pair = tuple[Mapping[str, Any], Any]
COUNTS = ":counts"  # of a source: numbers by name that are nowhere in the text, such as the length of a prompt
_ABSENT = object()
_TELLING = 4  # characters from which on a JSON text is taken to come from a field of another name
_DIFFERENT = 2  # values of a number, from which on it is taken to be counted
_NODES = 64  # places of a source that are looked at


class Template(Protocol):
    """Pure. `fill` raises `LookupError` or `ValueError` where the source is not of the kind it was learnt from."""

    def fill(self, source: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any

    def fill(self, source: Mapping[str, Any]) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Copy:
    """What stands at `path`, None if nothing does, changed by one of `CHANGES`."""

    path: Path
    change: str

    def fill(self, source: Mapping[str, Any]) -> Any:
        found = _at(source, self.path)
        return CHANGES[self.change](None if found is _ABSENT else found)


@dataclass(frozen=True, slots=True)
class Object:
    """`fields`: key, the condition under which it is there, its value; in the order in which they are written."""

    fields: tuple[tuple[str, Path, str, Template], ...]

    def fill(self, source: Mapping[str, Any]) -> Any:
        return {
            key: value.fill(source)
            for key, path, condition, value in self.fields
            if CONDITIONS[condition](_at(source, path))
        }


@dataclass(frozen=True, slots=True)
class Each:
    """One element for each element of the list of objects at `path`; where there is no list, none."""

    path: Path
    element: Template

    def fill(self, source: Mapping[str, Any]) -> Any:
        return [self.element.fill(each) for each in _objects(source, self.path)]


@dataclass(frozen=True, slots=True)
class Counted:
    """A number that goes with one of the `COUNTS` of a source: `sign` x count + `offset`."""

    count: str
    sign: int
    offset: int

    def fill(self, source: Mapping[str, Any]) -> Any:
        return self.sign * int(source[COUNTS][self.count]) + self.offset


@dataclass(frozen=True, slots=True)
class Row:
    """A list of a fixed length."""

    elements: tuple[Template, ...]

    def fill(self, source: Mapping[str, Any]) -> Any:
        return [element.fill(source) for element in self.elements]


def _redump(**how: Any) -> Callable[[Any], Any]:
    return lambda value: json.dumps(json.loads(_text(value)), **how)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise LookupError("no text")
    return value


CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "same": lambda value: value,
    "empty for none": lambda value: "" if value is None else value,
    "none for empty": lambda value: None if value == "" else value,
    "stripped": lambda value: _text(value).strip(),
    "stripped right": lambda value: _text(value).rstrip(),
    "object": lambda value: json.loads(_text(value)),
    "written again": _redump(),
    "written again, letters kept": _redump(ensure_ascii=False),
    "written again, short": _redump(separators=(",", ":")),
    "written again, short, letters kept": _redump(separators=(",", ":"), ensure_ascii=False),
}
CONDITIONS: Mapping[str, Callable[[Any], bool]] = {
    "always": lambda value: True,
    "there": lambda value: value is not _ABSENT,
    "not null": lambda value: value is not _ABSENT and value is not None,
    "not empty": lambda value: value is not _ABSENT and bool(value),
    "empty": lambda value: value is _ABSENT or not value,
}


def explain(pairs: Sequence[Pair]) -> Template | None:
    """The template of all these pairs; None if there is none, or no pair."""
    found = _explain(pairs, ()) if pairs else None
    return found if found is not None and all(explains(found, pair) for pair in pairs) else None


def explains(template: Template, pair: Pair) -> bool:
    try:
        return canonical(template.fill(pair[0])) == canonical(pair[1])
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        return False


def _explain(pairs: Sequence[Pair], hint: Path) -> Template | None:
    """`hint`: where the value would stand if it was copied as it is."""
    found = _copied(pairs, hint) or _copied_from_elsewhere(pairs) or _taken_apart(pairs, hint) or _counted(pairs)
    if found is None and len({canonical(target) for _, target in pairs}) == 1:
        source, target = pairs[0]
        changed = len(pairs) == 1 and isinstance(target, (int, float)) and _at(source, hint) is not _ABSENT
        return None if changed else Constant(target)  # a number that was another before may be any after
    return found


def _copied(pairs: Sequence[Pair], path: Path) -> Copy | None:
    if all(_at(source, path) is _ABSENT for source, _ in pairs):
        return None
    copies = (Copy(path, change) for change in CHANGES)
    return next((copy for copy in copies if all(explains(copy, pair) for pair in pairs)), None)


def _copied_from_elsewhere(pairs: Sequence[Pair]) -> Copy | None:
    source, target = pairs[0]
    if len(canonical(target)) < _TELLING or not isinstance(target, (str, dict)):
        return None
    copies = (_copied(pairs, path) for path in _places(source))
    return next((copy for copy in copies if copy is not None), None)


def _counted(pairs: Sequence[Pair]) -> Counted | None:
    if len({canonical(target) for _, target in pairs}) < _DIFFERENT or not all(type(t) is int for _, t in pairs):
        return None
    for name in pairs[0][0].get(COUNTS, ()):
        for sign in (1, -1):
            offsets = {target - sign * source[COUNTS][name] for source, target in pairs}
            if len(offsets) == 1:
                return Counted(name, sign, offsets.pop())
    return None


def _taken_apart(pairs: Sequence[Pair], hint: Path) -> Template | None:
    if all(isinstance(target, dict) for _, target in pairs):
        return _object(cast("Sequence[tuple[Mapping[str, Any], dict[str, Any]]]", pairs), hint)
    if all(isinstance(target, list) for _, target in pairs):
        return _list(cast("Sequence[tuple[Mapping[str, Any], list[Any]]]", pairs), hint)
    return None


def _object(pairs: Sequence[tuple[Mapping[str, Any], dict[str, Any]]], hint: Path) -> Template | None:
    fields: list[tuple[str, Path, str, Template]] = []
    for key in _order([list(target) for _, target in pairs]):
        having = [(source, target[key]) for source, target in pairs if key in target]
        value = _explain(having, (*hint, key))
        condition = _condition(pairs, key, (*hint, key))
        if value is None or condition is None:
            return None
        fields.append((key, *condition, value))
    return Object(tuple(fields))


def _order(rows: Sequence[list[str]]) -> list[str]:
    """All keys, each behind the one it follows in its row."""
    order: list[str] = []
    for row in rows:
        place = 0
        for key in row:
            if key in order:
                place = order.index(key) + 1
            else:
                order.insert(place, key)
                place += 1
    return order


def _condition(
    pairs: Sequence[tuple[Mapping[str, Any], dict[str, Any]]], key: str, path: Path
) -> tuple[Path, str] | None:
    """When the key is there: by the field of the same name, or by whether there are tool calls."""
    for place in (path, ("tool_calls",)):
        for name, holds in CONDITIONS.items():
            if all(holds(_at(source, place)) == (key in target) for source, target in pairs):
                return place, name
    return None


def _list(pairs: Sequence[tuple[Mapping[str, Any], list[Any]]], hint: Path) -> Template | None:
    lists = [_objects(source, hint) for source, _ in pairs]
    if any(lists) and all(len(found) == len(target) for found, (_, target) in zip(lists, pairs, strict=True)):
        elements = [
            each for found, (_, target) in zip(lists, pairs, strict=True) for each in zip(found, target, strict=True)
        ]
        element = _explain(elements, ())
        return Each(hint, element) if element is not None else None
    if len({len(target) for _, target in pairs}) != 1:
        return None
    rows = [_explain([(s, target[i]) for s, target in pairs], (*hint, i)) for i in range(len(pairs[0][1]))]
    found = [row for row in rows if row is not None]
    return Row(tuple(found)) if len(found) == len(rows) else None


def _objects(source: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """The list of objects that stands there, each with its `index`; an empty one if something else does."""
    found = _at(source, path)
    parts = cast("list[Any]", found) if isinstance(found, list) else []
    return [{"index": i, **part} for i, part in enumerate(parts)] if all(isinstance(p, dict) for p in parts) else []


def _at(source: Any, path: Path) -> Any:
    """What stands there, `_ABSENT` if nothing does."""
    for step in path:
        if isinstance(source, Mapping) and step in source:
            source = cast("Mapping[Any, Any]", source)[step]
        elif isinstance(source, list) and isinstance(step, int) and step < len(cast("list[Any]", source)):
            source = cast("list[Any]", source)[step]
        else:
            return _ABSENT
    return source


def _places(source: Mapping[str, Any]) -> list[Path]:
    """Where texts stand in a source, the outer ones first."""
    places: list[Path] = []
    todo: list[tuple[Path, Any]] = [((), source)]
    for path, value in todo:
        if len(todo) > _NODES:
            break
        if isinstance(value, dict):
            todo += [((*path, key), inner) for key, inner in cast("dict[str, Any]", value).items()]
        elif isinstance(value, list):
            todo += [((*path, i), inner) for i, inner in enumerate(cast("list[Any]", value))]
        elif isinstance(value, str):
            places.append(path)
    return places
