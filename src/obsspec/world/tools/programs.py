"""How a tool makes a new object of an old one and its arguments, as far as the examples so far agree.

A program is a tree of `Node`s over the new object. Each holds all expressions that gave the right value in every
example: the old value, an argument, a sorted argument, the negated old value, a constant. A list may also be the old
list with one more element for each old one (`each`), a JSON object is changed key by key (`keys`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

Object = Mapping[str, Any]
Expression = tuple[str, str]  # what to do, and with what: the path of an argument, or a constant as JSON

SAME: Expression = ("same", "")
NEGATED: Expression = ("negated", "")
_ORDER = ("same", "argument", "sorted", "negated", "constant")
ABSENT: Any = object()


class NoValueError(Exception):
    """A program can not say what the new value is."""


@dataclass(frozen=True, slots=True)
class Node:
    expressions: frozenset[Expression]
    each: Mapping[str, Node] | None = None
    keys: Mapping[str, Node] | None = None

    @property
    def empty(self) -> bool:
        """Nothing explains all examples."""
        if self.expressions or self.each is not None:
            return False
        return self.keys is None or any(node.empty for node in self.keys.values())


def explain(value: Any, old: Any, arguments: Object) -> Node:
    """Everything that could have made `value`; `old` is `ABSENT` where there was nothing."""
    found: set[Expression] = {("constant", _write(value))}
    if value == old:
        found.add(SAME)
    if _is_number(value) and _is_number(old) and value == -old and value:
        found.add(NEGATED)
    for path, argument in arguments.items():
        if argument == value:
            found.add(("argument", path))
        if isinstance(argument, list) and isinstance(value, list) and _sorted(cast("list[Any]", argument)) == value:
            found.add(("sorted", path))
    return Node(frozenset(found), _explain_each(value, old, arguments), _explain_keys(value, old, arguments))


def merge(first: Node, second: Node) -> Node:
    """What explains the examples of both."""
    return Node(
        first.expressions & second.expressions,
        _merge_each(first.each, second.each),
        _merge_keys(first.keys, second.keys),
    )


def apply(node: Node, old: Any, arguments: Object) -> Any:
    """The new value. Raises `NoValueError`."""
    choices = sorted(node.expressions, key=lambda expression: _ORDER.index(expression[0]))
    for expression in choices:
        if expression[0] != "constant":
            return _evaluate(expression, old, arguments)
    if node.each is not None and isinstance(old, list):
        elements = cast("list[Any]", old)
        return [*elements, *(_apply_keys(node.each, element, arguments) for element in elements)]
    if node.keys is not None and isinstance(old, dict | type(ABSENT)):
        return _apply_keys(node.keys, old, arguments)
    if choices:
        return json.loads(choices[0][1])
    raise NoValueError


def _explain_each(value: Any, old: Any, arguments: Object) -> dict[str, Node] | None:
    if not isinstance(value, list) or not isinstance(old, list):
        return None
    values, olds = cast("list[Any]", value), cast("list[Any]", old)
    if not olds or len(values) != 2 * len(olds) or values[: len(olds)] != olds:
        return None
    nodes: dict[str, Node] | None = None
    for new, element in zip(values[len(olds) :], olds, strict=True):
        found = _explain_keys(new, element, arguments)
        nodes = found if nodes is None else _merge_each(nodes, found)
        if nodes is None:
            return None
    return nodes


def _explain_keys(value: Any, old: Any, arguments: Object) -> dict[str, Node] | None:
    if not isinstance(value, dict) or not (old is ABSENT or isinstance(old, dict)):
        return None
    new = cast("dict[str, Any]", value)
    before = dict[str, Any]() if old is ABSENT else cast("dict[str, Any]", old)
    if any(key not in new for key in before):
        return None
    return {key: explain(inner, before.get(key, ABSENT), arguments) for key, inner in new.items()}


def _merge_each(first: Mapping[str, Node] | None, second: Mapping[str, Node] | None) -> dict[str, Node] | None:
    merged = None if first is None or second is None or first.keys() != second.keys() else _merge_keys(first, second)
    return None if merged is None or any(node.empty for node in merged.values()) else merged


def _merge_keys(first: Mapping[str, Node] | None, second: Mapping[str, Node] | None) -> dict[str, Node] | None:
    """Keys that only one example has stay when they were copied: then the other had nothing to copy."""
    if first is None or second is None:
        return None
    merged = {key: merge(node, second[key]) for key, node in first.items() if key in second}
    for one, other in ((first, second), (second, first)):
        for key in one.keys() - other.keys():
            merged[key] = Node(one[key].expressions & {SAME})
    return merged


def _apply_keys(nodes: Mapping[str, Node], old: Any, arguments: Object) -> dict[str, Any]:
    before: dict[str, Any] = dict(cast("Object", old)) if isinstance(old, dict) else {}
    made: dict[str, Any] = {}
    for key in (*before, *(key for key in nodes if key not in before)):
        node = nodes.get(key)
        if key not in before and node is not None and node.expressions == frozenset((SAME,)):
            continue
        made[key] = before[key] if node is None else apply(node, before.get(key, ABSENT), arguments)
    return made


def _evaluate(expression: Expression, old: Any, arguments: Object) -> Any:
    match expression:
        case ("same", _) if old is not ABSENT:
            return old
        case ("negated", _) if _is_number(old):
            return -old
        case ("argument", path) if path in arguments:
            return arguments[path]
        case ("sorted", path) if isinstance(arguments.get(path), list):
            return _sorted(arguments[path])
        case _:
            raise NoValueError


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write(value: Any) -> str:
    return json.dumps(value)
