"""Learns how messages of the programs elsewhere differ from those of this machine: wording, numbers, further lines.

A rule maps the shape of one line of a message (numbers, quoted texts and the name of the shell left out) to the lines
that stand for it there. A number of the new lines is one of the old line, one less, the number after the script's last
line, or itself. A rule holds once it was right twice and as long as it is mostly right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MAX_LINES = 40
MAX_RULES = 500
_SLOT = re.compile(r"\d+|'[^'\n]{2,}'|`[^'`\n]{2,}'|\"[^\"\n]{2,}\"")
_MESSAGE = re.compile(r"[^:\d/]*: .*[a-z]{3}")
_SHELL = "\x01"


@dataclass(frozen=True, slots=True)
class Shape:
    """A line with its slots left out: the texts between them. `values` belong to one line, not to the shape."""

    texts: tuple[str, ...]


Line = tuple[Shape, tuple[str, ...]]
Source = tuple[str, int, str]  # "slot", index, "" | "before", index, "" | "end", 0, "" | "text", 0, constant
Rule = tuple[tuple[tuple[str, ...], tuple[Source, ...]], ...]


@dataclass(slots=True)
class _Score:
    right: int = 0
    wrong: int = 0

    @property
    def holds(self) -> bool:
        return self.right >= 2 and self.right >= 4 * self.wrong


class Rewrites:
    """Pure state, shared by all rollouts. `shell`: the name that the shell of a script gives itself in messages."""

    def __init__(self) -> None:
        self._rules: dict[Shape, dict[Rule, _Score]] = {}

    def apply(self, text: str, script: str, shell: str) -> str:
        lines = _lines(text, shell)
        if lines is None:
            return text
        found: list[str] = []
        for line in lines:
            shape, values = _read(line)
            rule = self._rule(shape)
            found += [line] if rule is None else _write(rule, values, script)
        return "\n".join(found).replace(_SHELL, shell)

    def learn(self, text: str, script: str, shell: str, truth: str) -> None:
        """`text`: what was printed here, before rules were applied."""
        ours, theirs = _lines(text, shell), _lines(truth, shell)
        if ours is None or theirs is None:
            return
        self._check(ours, theirs, script)
        if ours != theirs:
            for line, others in _differences(ours, theirs):
                if not all(map(_MESSAGE.match, (line, *others))):
                    continue
                shape, values = _read(line)
                rule = tuple(_explain(other, values, script) for other in others)
                known = self._rules.setdefault(shape, {})
                if rule not in known and len(known) < 8 and len(self._rules) < MAX_RULES:
                    known[rule] = _Score(right=1)

    def _check(self, ours: Sequence[str], theirs: Sequence[str], script: str) -> None:
        for line in ours:
            shape, values = _read(line)
            for rule, score in self._rules.get(shape, {}).items():
                wanted = _write(rule, values, script)
                if _within(wanted, theirs):
                    score.right += 1
                else:
                    score.wrong += 1

    def _rule(self, shape: Shape) -> Rule | None:
        rules = self._rules.get(shape, {})
        good = [rule for rule, score in rules.items() if score.holds]
        return max(good, key=lambda rule: rules[rule].right) if good else None


def _lines(text: str, shell: str) -> list[str] | None:
    lines = text.replace(f"{shell}: ", f"{_SHELL}: ").split("\n")
    return lines if 0 < len(lines) <= MAX_LINES else None


def _read(line: str) -> Line:
    texts: list[str] = []
    values: list[str] = []
    end = 0
    for match in _SLOT.finditer(line):
        texts.append(line[end : match.start()])
        values.append(match[0])
        end = match.end()
    texts.append(line[end:])
    return Shape(tuple(texts)), tuple(values)


def _differences(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """A line of ours, and what stands for it there, itself included where lines were added after it."""
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "replace" and b - a == 1 and d - c <= 3:
            yield ours[a], theirs[c:d]
        elif tag == "replace" and b - a == d - c <= 4:
            for one, other in zip(ours[a:b], theirs[c:d], strict=True):
                yield one, [other]
        elif tag == "insert" and a and d - c <= 3:
            yield ours[a - 1], theirs[c - 1 : d]


def _explain(line: str, values: Sequence[str], script: str) -> tuple[tuple[str, ...], tuple[Source, ...]]:
    shape, slots = _read(line)
    return shape.texts, tuple(_source(slot, values, script) for slot in slots)


def _source(slot: str, values: Sequence[str], script: str) -> Source:
    if slot.isdigit() and int(slot) == _end(script):
        return ("end", 0, "")
    if slot in values:
        return ("slot", values.index(slot), "")
    if slot.isdigit() and str(int(slot) + 1) in values:
        return ("before", values.index(str(int(slot) + 1)), "")
    return ("text", 0, slot)


def _write(rule: Rule, values: Sequence[str], script: str) -> list[str]:
    return [_fill(texts, [_value(source, values, script) for source in sources]) for texts, sources in rule]


def _fill(texts: Sequence[str], values: Sequence[str]) -> str:
    return "".join(part for pair in zip(texts, [*values, ""], strict=True) for part in pair)


def _value(source: Source, values: Sequence[str], script: str) -> str:
    kind, index, text = source
    match kind:
        case "slot":
            return values[index]
        case "before":
            return str(int(values[index]) - 1)
        case "end":
            return str(_end(script))
        case _:
            return text


def _end(script: str) -> int:
    """The number of the line after the last, as the shell counts."""
    return script.count("\n") + 2


def _within(wanted: Sequence[str], lines: Sequence[str]) -> bool:
    size = len(wanted)
    return any(list(lines[at : at + size]) == list(wanted) for at in range(len(lines) - size + 1))
