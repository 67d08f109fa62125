"""Observations with holes where they repeat the call, and back: an answer seen for one file becomes one for another."""

from __future__ import annotations

import re
from functools import lru_cache

from obsspec.world.memory.calls import HOLE, Reading

_LINES = "\x03"
_LINE = re.compile(r"\bline (\d+)\b")
_FILLED = re.compile(f"{HOLE}([bd]?)(\\d+){HOLE}")
_MAX_TEXT = 4000
_MAX_WORDS = 24


@lru_cache(maxsize=4096)
def abstract(reading: Reading, text: str) -> str:
    """The text with each argument of the call replaced by its number; as it is when it is long or has none."""
    if len(text) > _MAX_TEXT or HOLE in text or _LINES in text:
        return text
    for word, mark in _marks(reading):
        if word in text:
            text = _replaced(text, word, mark)
    if "line " in text:
        lines = reading.text.count("\n") + 1
        text = _LINE.sub(lambda found: _counted(found, lines), text)
    return text


def fill(reading: Reading, template: str) -> str | None:
    """The text for this call; None if it has too few arguments."""
    if HOLE not in template and _LINES not in template:
        return template
    missing = False

    def word(found: re.Match[str]) -> str:
        nonlocal missing
        number = int(found[2])
        if number >= len(reading.words):
            missing = True
            return ""
        return _form(reading.words[number], found[1])

    text = _FILLED.sub(word, template)
    lines = reading.text.count("\n") + 1
    text = re.sub(f"{_LINES}(\\d)", lambda found: str(lines + int(found[1])), text)
    return None if missing else text


def echoes(reading: Reading, text: str) -> bool:
    """Whether the text repeats some of the call."""
    return abstract(reading, text) != text


def _replaced(text: str, word: str, mark: str) -> str:
    """Where the word stands by itself. By hand, because every call has other words: a pattern would be used once."""
    parts = text.split(word)
    joined = parts[0]
    for part in parts[1:]:
        inside = _in_word(joined[-1:]) or _in_word(part[:1])
        joined += (word if inside else mark) + part
    return joined


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


@lru_cache(maxsize=4096)
def _marks(reading: Reading) -> tuple[tuple[str, str], ...]:
    """What to look for, longest first, and what to put there."""
    marks: dict[str, str] = {}
    for number, word in enumerate(reading.words[:_MAX_WORDS]):
        for form in ("", "b", "d"):
            value = _form(word, form)
            if len(value) >= 2 and not value.isspace():
                marks.setdefault(value, f"{HOLE}{form}{number}{HOLE}")
    return tuple(sorted(marks.items(), key=lambda item: len(item[0]), reverse=True))


def _form(word: str, form: str) -> str:
    """The word itself, its base name, or its directory."""
    if form == "b":
        return word.rstrip("/").rsplit("/", 1)[-1]
    if form == "d":
        return word.rstrip("/").rsplit("/", 1)[0] if "/" in word.strip("/") else ""
    return word


def _counted(found: re.Match[str], lines: int) -> str:
    above = int(found[1]) - lines
    return f"line {_LINES}{above}" if 0 <= above <= 2 else found[0]
