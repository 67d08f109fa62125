"""Tools that show an object, and tools that change one and answer with what it is now."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from obsspec.world.tools.entities import Entities, Key, Known, read_object, write_like
from obsspec.world.tools.programs import Node, NoValueError, apply, explain, merge
from obsspec.world.tools.seen import Asked
from obsspec.world.tools.trust import Claim


@dataclass(slots=True)
class _Program:
    """`shown`: the distinct calls that the program explains."""

    node: Node
    shown: set[Hashable] = field(default_factory=set[Hashable])


class Objects:
    """Either the object is as it was last seen, or the program of the tool says what became of it."""

    def __init__(self) -> None:
        self._entities = Entities()
        self._programs: dict[str, _Program] = {}
        self._example: dict[str, str] = {}
        self._changing: dict[str, bool] = {}

    def claims(self, asked: Asked) -> Iterable[Claim]:
        key = self._entities.key_of(asked.call)
        known = None if key is None else self._entities.find(asked, key)
        if key is None or known is None:
            return
        example = self._example.get(asked.call.name, "")
        if not _alike(known.value, read_object(example)):
            return
        shown = write_like(known.value, example)
        if shown is not None:
            yield Claim(shown, "tools/object", self._seen_classes(asked, known), 0.6)
        program = self._programs.get(asked.call.name)
        if program is None:
            return
        try:
            made = write_like(apply(program.node, known.value, asked.call.arguments), example)
        except NoValueError:
            return
        if made is not None and made != shown:
            bucket = min(len(program.shown), 4)
            yield Claim(made, "tools/update", self._update_classes(asked, known, bucket), 0.5)

    def learn(self, asked: Asked, text: str) -> None:
        value = read_object(text)
        if value is None:
            return
        self._example[asked.call.name] = text
        key: Key | None = self._entities.key_of(asked.call)
        known = None if key is None else self._entities.find(asked, key)
        self._entities.learn(asked, value)
        if known is None or key is None or value.get(key[0]) != key[1]:
            return
        self._changing[asked.call.name] = self._changing.get(asked.call.name, False) or value != known.value
        node = explain(value, known.value, asked.call.arguments)
        program = self._programs.get(asked.call.name)
        merged = node if program is None else merge(program.node, node)
        if program is None or merged.empty:
            program = self._programs[asked.call.name] = _Program(node)
        program.node = node if merged.empty else merged
        if len(program.shown) < 64:
            program.shown.add(hash(repr(asked.call)))

    def _update_classes(self, asked: Asked, known: Known, bucket: int) -> tuple[Hashable, ...]:
        state = ("update", bucket, known.where, known.fresh)
        return (state, (*state, asked.call.name))

    def _seen_classes(self, asked: Asked, known: Known) -> tuple[Hashable, ...]:
        state = ("object", known.where, known.fresh, self._changing.get(asked.call.name))
        return (state, (*state, asked.call.name, known.tool))


def _alike(first: dict[str, Any], second: dict[str, Any] | None) -> bool:
    """Objects of one kind have most of their keys in common."""
    return second is not None and 2 * len(first.keys() & second.keys()) > len(first.keys() | second.keys())
