"""Tools that always answer the same, or the same but for copies of their arguments."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import lru_cache

from obsspec.values import ToolCall
from obsspec.world.tools.holes import Template, abstract, hole_values
from obsspec.world.tools.seen import Asked, leaves
from obsspec.world.tools.streak import Streak
from obsspec.world.tools.trust import Claim

_MAX_CLASSES = 20_000


class Templates:
    """Answers to calls of one kind: the tool with the names of its arguments, or with how its one text looks."""

    def __init__(self) -> None:
        self._streaks: dict[Hashable, Streak[Template]] = {}

    def claims(self, asked: Asked) -> Iterable[Claim]:
        values = argument_values(asked.call)
        arguments = _digest(asked.call)
        for kind in kinds(asked.call):
            streak = self._streaks.get(kind)
            text = None if streak is None else streak.idea.fill(values)
            if streak is not None and text is not None:
                form = _form(streak.idea)
                prior = (streak.length + (form != "data")) / (streak.length + 1 + (form != "data"))
                classes = (
                    ("constant", form, streak.bucket),
                    ("constant", asked.call.name, streak.bucket),
                    ("constant", kind),
                )
                yield Claim(text, "tools/constant", classes, prior, 3.0, evidence=arguments not in streak.shown)

    def learn(self, asked: Asked, text: str) -> None:
        template = abstract(text, argument_values(asked.call))
        arguments = _digest(asked.call)
        for kind in kinds(asked.call):
            if kind not in self._streaks and len(self._streaks) < _MAX_CLASSES:
                self._streaks[kind] = Streak(template)
            if kind in self._streaks:
                self._streaks[kind].see(template, arguments)


def _digest(call: ToolCall) -> int:
    return hash(repr(sorted(call.arguments.items())))


def _form(template: Template) -> str:
    """Constant data says less about the next answer than a constant sentence."""
    if template.holes:
        return "filled"
    text = template.parts[0].strip()
    return "data" if text[:1] in ("{", "[", "(") or text[:1].isdigit() else "text"


def argument_values(call: ToolCall) -> dict[str, str]:
    """The scalars in the arguments, by path, spelled as in texts."""
    return hole_values({".".join(map(str, path)): value for path, value in leaves(dict(call.arguments))})


def kinds(call: ToolCall) -> tuple[Hashable, ...]:
    """The classes of a call, coarse to fine."""
    named = (call.name, tuple(sorted(call.arguments)))
    texts = [value for value in call.arguments.values() if isinstance(value, str)]
    return (named, (*named, _look(texts[0]))) if len(texts) == 1 else (named,)


@lru_cache(maxsize=4096)
def _look(text: str) -> tuple[str, bool]:
    """How a text looks: its first word with what follows it, and whether its brackets are closed."""
    begin = re.match(r"\s*(\w*)\W?", text)
    closed = all(text.count(left) == text.count(right) for left, right in ("()", "[]", "{}"))
    return (begin.group(0).strip().lower()[:40] if begin else "", closed)
