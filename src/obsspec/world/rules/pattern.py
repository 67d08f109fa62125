"""POSIX regular expressions as Python's, for the forms on which both agree."""

from __future__ import annotations

import re
from functools import lru_cache

from obsspec.world.rules.program import UndeterminedError

_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r" \t\n\r\f\v",
    "blank": r" \t",
    "xdigit": "0-9a-fA-F",
    "punct": r"!-/:-@\[-`{-~",
}
_GNU = {
    "w": "[A-Za-z0-9_]",
    "W": "[^A-Za-z0-9_]",
    "s": r"[ \t\n\r\f\v]",
    "S": r"[^ \t\n\r\f\v]",
    "b": r"\b",
    "B": r"\B",
    "<": r"\b(?=\w)",
    ">": r"\b(?<=\w)",
}


@lru_cache(maxsize=1024)
def compiled(pattern: str, extended: bool, ignore_case: bool = False) -> re.Pattern[str]:
    """The pattern for Python. Raises `UndeterminedError` for what is not translated."""
    if not pattern.isascii():
        raise UndeterminedError
    try:
        return re.compile(_Translation(pattern, extended).run(), re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError):
        raise UndeterminedError from None


class _Translation:
    def __init__(self, pattern: str, extended: bool) -> None:
        self.pattern = pattern
        self.extended = extended
        self.at = 0
        self.out: list[str] = []
        self.open = 0

    def run(self) -> str:
        while self.at < len(self.pattern):
            self._one(self.pattern[self.at])
        if self.open:
            raise UndeterminedError
        return "".join(self.out)

    def _one(self, character: str) -> None:
        if character == "\\":
            self._escaped()
        elif character == "[":
            self._bracket()
        elif character in "^$":
            self._anchor(character)
        elif character == ".":
            self._put(".")
        elif character == "*":
            self._repeat("*")
        elif self.extended and character in "+?":
            self._repeat(character)
        elif self.extended and character in "(|)":
            self._group(character)
        elif self.extended and character == "{":
            self._interval("}")
        else:
            self._put(re.escape(character))

    def _put(self, text: str, length: int = 1) -> None:
        self.out.append(text)
        self.at += length

    def _repeat(self, mark: str) -> None:
        if not self.out or self.out[-1] in ("(", "|", "^", "*", "+", "?"):
            raise UndeterminedError
        self._put(mark)

    def _group(self, character: str) -> None:
        self.open += {"(": 1, ")": -1, "|": 0}[character]
        if self.open < 0:
            raise UndeterminedError
        self._put(character)

    def _anchor(self, character: str) -> None:
        rest = self.pattern[self.at + 1 :]
        if character == "^":
            special = not self.out or self.out[-1] in ("(", "|")
        else:
            special = not rest or rest.startswith(("|", ")") if self.extended else ("\\|", "\\)"))
        if not special:
            if self.extended:
                raise UndeterminedError
            self._put("\\" + character)
        else:
            self._put(character if character == "^" else r"\Z")

    def _escaped(self) -> None:
        following = self.pattern[self.at + 1 : self.at + 2]
        if not following or following.isdigit():
            raise UndeterminedError
        if not self.extended and following in "(|)":
            self.at += 1
            self._group(following)
        elif not self.extended and following in "+?":
            self.at += 1
            self._repeat(following)
        elif not self.extended and following == "{":
            self.at += 1
            self._interval("\\}")
        elif following in _GNU:
            self._put(_GNU[following], 2)
        elif following.isalpha():
            raise UndeterminedError
        else:
            self._put(re.escape(following), 2)

    def _interval(self, close: str) -> None:
        found = re.match(r"\{(\d+)?(,)?(\d+)?" + re.escape(close), self.pattern[self.at :])
        if found is None or not self.out or not found[1]:
            raise UndeterminedError
        self._put("{" + found[1] + (found[2] or "") + (found[3] or "") + "}", len(found[0]))

    def _bracket(self) -> None:
        found = re.match(r"\[(\^?)(\]?(?:\[:[a-z]+:\]|[^\]\[])*)\]", self.pattern[self.at :])
        if found is None or not found[2] or ("\\" in found[2] and self._odd(found[2])):
            raise UndeterminedError
        inside = re.sub(r"\[:([a-z]+):\]|[\]\\^&~|#]", lambda m: self._member(m), found[2])
        self._put(f"[{found[1]}{inside}]", len(found[0]))

    def _odd(self, inside: str) -> bool:
        return re.search(r"\\[a-zA-Z]", inside) is not None  # people mean an escape, which it is not

    def _member(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return "\\" + found[0]
        if found[1] not in _CLASSES:
            raise UndeterminedError
        return _CLASSES[found[1]]
