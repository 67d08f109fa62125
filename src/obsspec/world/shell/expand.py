"""What words come to: fields of text where that is determined, None where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol

from obsspec.world.shell.tree import Literal, Opaque, Part, Substitution, Variable, Word

_PATTERN = re.compile(r"[*?]|\[.*\]|[@!+]\(", re.DOTALL)
_BRACES = re.compile(r"\{(?:[^{}]*,[^{}]*|-?\d+\.\.-?\d+|[a-zA-Z]\.\.[a-zA-Z])\}")
MAX_FIELDS = 1000


class Scope(Protocol):
    """What a script can see. None: not known; an unset variable is ""."""

    def variable(self, name: str) -> str | None: ...

    def output(self, part: Substitution) -> str | None: ...


def is_pattern(text: str) -> bool:
    """Whether the unquoted `text` may match file names."""
    return _PATTERN.search(text) is not None


def text(word: Word, scope: Scope) -> str | None:
    """The word as one string, as where no splitting and no patterns are: assignments, documents."""
    values = [_value(part, scope) for part in word.parts]
    if any(value is None for value in values):
        return None
    first = word.parts[0] if word.parts else None
    joined = "".join(value for value in values if value is not None)
    if isinstance(first, Literal) and not first.quoted and first.text.startswith("~"):
        return _home(joined, scope)
    return joined


def fields(word: Word, scope: Scope) -> tuple[str, ...] | None:
    """The arguments that the word becomes. None if it is not determined, file name patterns included."""
    if _plain(word):
        return (word.parts[0].text,) if word.parts else ()  # type: ignore[union-attr]
    found: list[str] = []
    for variant in _braced(word):
        more = _split(variant, scope)
        if more is None or len(found) > MAX_FIELDS:
            return None
        found += more
    return tuple(found)


def all_fields(words: tuple[Word, ...], scope: Scope) -> tuple[str, ...] | None:
    found: list[str] = []
    for word in words:
        more = fields(word, scope)
        if more is None:
            return None
        found += more
    return tuple(found)


def _plain(word: Word) -> bool:
    """The most frequent case: one literal without anything special."""
    part = word.parts[0] if len(word.parts) == 1 else None
    return isinstance(part, Literal) and (part.quoted or not set(part.text) & set("~*?[{@!+"))


def _value(part: Part, scope: Scope) -> str | None:
    if isinstance(part, Literal):
        return part.text
    if isinstance(part, Variable):
        return scope.variable(part.name)
    if isinstance(part, Substitution):
        return scope.output(part)
    return None


def _split(word: Word, scope: Scope) -> list[str] | None:
    """Word splitting at blanks of unquoted values (the usual IFS)."""
    done: list[str] = []
    held: str | None = None
    for index, part in enumerate(word.parts):
        value = _value(part, scope)
        if value is None:
            return None
        if isinstance(part, Literal):
            if not part.quoted:
                if is_pattern(value):
                    return None
                if index == 0 and value.startswith("~"):
                    home = _home(value, scope)
                    if home is None or (len(word.parts) > 1 and "/" not in value):
                        return None
                    value = home
            held = (held or "") + value
        elif part.quoted:
            held = (held or "") + value
        else:
            if is_pattern(value) or "\\" in value:
                return None
            pieces = re.split(r"[ \t\n]+", value)
            for number, piece in enumerate(pieces):
                if number and held is not None:
                    done.append(held)
                    held = None
                if piece:
                    held = (held or "") + piece
    return done if held is None else [*done, held]


def _home(value: str, scope: Scope) -> str | None:
    name, slash, rest = value.partition("/")
    home = scope.variable("HOME") if name == "~" else None
    return home + slash + rest if home else None


def _braced(word: Word) -> Iterator[Word]:
    """Brace expansion, where braces, commas and dots are all in one unquoted literal."""
    for index, part in enumerate(word.parts):
        found = _BRACES.search(part.text) if isinstance(part, Literal) and not part.quoted else None
        if found is None or not isinstance(part, Literal):
            continue
        if index and found.start() == 0 and isinstance(word.parts[index - 1], Variable):
            yield Word((Opaque(part.text),))  # the choices become parts of its name
            return
        for choice in _choices(found[0][1:-1]):
            inside = Literal(part.text[: found.start()] + choice + part.text[found.end() :])
            yield from _braced(Word((*word.parts[:index], inside, *word.parts[index + 1 :])))
        return
    yield word


def _choices(inside: str) -> list[str]:
    if "," in inside:
        return inside.split(",")
    low, _, high = inside.partition("..")
    numbers = low.lstrip("-").isdigit()
    start, end = (int(low), int(high)) if numbers else (ord(low), ord(high))
    if abs(end - start) > MAX_FIELDS:
        return ["*"]  # too many: left undetermined
    if numbers and any(len(n.lstrip("-")) > 1 and n.lstrip("-").startswith("0") for n in (low, high)):
        return ["*"]  # padded with zeros
    values = range(start, end + 1) if end >= start else range(start, end - 1, -1)
    return [str(v) if numbers else chr(v) for v in values]


Lookup = Callable[[str], str | None]
