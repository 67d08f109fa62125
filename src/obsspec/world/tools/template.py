"""Tools that always answer the same, or the same but for copies of their arguments and of earlier answers."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import lru_cache

from obsspec.values import ToolCall
from obsspec.world.tools.holes import MAX_ANSWER, Template, abstract, spellings
from obsspec.world.tools.seen import Asked, leaves, read_json
from obsspec.world.tools.streak import Streak
from obsspec.world.tools.trust import Claim

_MAX_CLASSES = 20_000
_LOOK_BACK = 8  # answers


class Templates:
    """Answers to calls of one kind: the tool with the names of its arguments, or with how its one text looks."""

    def __init__(self) -> None:
        self._streaks: dict[Hashable, Streak] = {}

    def claims(self, asked: Asked) -> Iterable[Claim]:
        call = digest(asked.call)
        known = [(kind, streak) for kind in kinds(asked.call) if (streak := self._streaks.get(kind)) is not None]
        values = values_before(asked) if any(streak.template.holes for _, streak in known) else {}
        for kind, streak in known:
            text = streak.template.fill(values)
            if text is not None:
                form = _form(streak.template)
                sentence = form in ("text", "filled")
                prior = (streak.length + sentence) / (streak.length + 1 + sentence)
                classes = (
                    ("constant", form, streak.bucket),
                    ("constant", asked.call.name, streak.bucket),
                    ("constant", kind),
                )
                yield Claim(text, "tools/constant", classes, prior, 3.0, evidence=call not in streak.shown)

    def learn(self, asked: Asked, text: str) -> None:
        if len(text) > MAX_ANSWER:
            return
        values = values_before(asked)
        for kind in kinds(asked.call):
            streak = self._streaks.get(kind)
            if streak is not None:
                streak.see(text, values, digest(asked.call))
            elif len(self._streaks) < _MAX_CLASSES:
                self._streaks[kind] = Streak(abstract(text, values), {digest(asked.call)})


def digest(call: ToolCall) -> int:
    """Tells calls of one tool apart."""
    return hash(repr(sorted(call.arguments.items())))


def _form(template: Template) -> str:
    """Constant data, and ids even more, say less about the next answer than a constant sentence."""
    text = "".join(template.texts).strip()
    if re.search(r"\d{4}", text):
        return "filled id" if template.varies else "id"
    if template.varies:
        return "filled"
    return "data" if text[:1] in ("{", "[", "(") or text[:1].isdigit() else "text"


def values_before(asked: Asked) -> dict[str, str]:
    """The scalars in the arguments, then those in the last answers of the rollout, by path, spelled as in texts."""
    values = argument_values(asked.call)
    for seen in asked.before[-_LOOK_BACK:]:
        values.update(_answer_values(seen.call.name, seen.text))
    return values


def argument_values(call: ToolCall) -> dict[str, str]:
    """The scalars in the arguments, by path, spelled as in texts."""
    return spellings({".".join(map(str, path)): value for path, value in leaves(dict(call.arguments))})


@lru_cache(maxsize=1024)
def _answer_values(tool: str, text: str) -> dict[str, str]:
    """What of an answer is long enough to be recognised."""
    found = {f"{tool}>{'.'.join(map(str, path))}": value for path, value in leaves(read_json(text)) if path}
    kept = {name: value for name, value in found.items() if value is not None and not isinstance(value, bool)}
    return {name: value for name, value in spellings(kept).items() if len(value) > 2}


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
