"""A format that is not known beforehand: text around every output, with holes for the exit code and the directory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from obsspec.world.format import Body

CODE, DIRECTORY, ANY = "\0", "\1", "\3"  # the holes; what is in the last is not known beforehand
_HOLES = {CODE: ("code", r"-?\d+"), DIRECTORY: ("directory", r"/[^\s\])\"]*")}


class Escapes(StrEnum):
    """How an output is written into the frame."""

    NONE = "none"
    ASCII = "ascii"  # as text of JSON
    UNICODE = "unicode"  # the same, with other letters as they are
    MARKUP = "markup"  # the same as ASCII, without characters that HTML knows


def _ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


def _markup(text: str) -> str:
    return re.sub("[<>&']", lambda found: f"\\u{ord(found[0]):04x}", _ascii(text))


WRITERS: Mapping[Escapes, Callable[[str], str]] = {
    Escapes.NONE: str,
    Escapes.ASCII: _ascii,
    Escapes.UNICODE: lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    Escapes.MARKUP: _markup,
}


@dataclass(frozen=True, slots=True)
class Frame:
    """`between` parts the two streams, None where they are one. `bare`: without output its line end is missing, too.

    `determined`: False where something in the frame is not known beforehand, such as how long the call took.
    `directory`: where the shell is as far as the history tells.
    """

    before: str
    after: str
    between: str | None = None
    escapes: Escapes = Escapes.NONE
    trimmed: bool = False
    empty: str = ""
    bare: bool = False
    determined: bool = True
    directory: str = ""
    name: str = "frame"
    stateful: bool | None = None

    @property
    def merges(self) -> bool:
        return self.between is None

    @property
    def shows_directory(self) -> bool:
        return DIRECTORY in f"{self.before}{self.between}{self.after}"

    def render(self, stdout: str, stderr: str, exit_code: int) -> str:
        parts = [stdout + stderr] if self.between is None else [stdout, stderr]
        parts = [part.rstrip() if self.trimmed else part for part in parts]
        after = self.after[1:] if self.bare and not any(parts) else self.after
        shown = [WRITERS[self.escapes](part or self.empty) for part in parts]
        pieces = (self.before, shown[0], *((self.between or "", shown[1]) if len(shown) > 1 else ()), after)
        return "".join(pieces).replace(CODE, str(exit_code)).replace(DIRECTORY, self.directory)

    def read(self, text: str) -> Body | None:
        found = self._match(text)
        if found is None:
            return None
        parts = [_read_escaped(part, self.escapes) for part in (found["one"], found["two"])]
        code = found["code"]
        body = "".join("" if part == self.empty else part for part in parts)
        return Body(body, None if code is None else int(code), trimmed=self.trimmed)

    def directory_in(self, text: str) -> str | None:
        """The directory that an observation shows."""
        found = self._match(text)
        return None if found is None else found["directory"]

    def _match(self, text: str) -> dict[str, str | None] | None:
        pattern = _pattern(self.before, self.between, self.after)
        found = pattern.fullmatch(text)
        if found is None and self.bare:
            found = _pattern(self.before, None, self.after[1:], body="()").fullmatch(text)
        return None if found is None else {"code": None, "directory": None, "two": None, **found.groupdict()}


def _read_escaped(part: str | None, escapes: Escapes) -> str:
    if part is None or escapes is Escapes.NONE:
        return part or ""
    try:
        return str(json.loads(f'"{part}"', strict=False))
    except ValueError:
        return part


@lru_cache(maxsize=256)
def _pattern(before: str, between: str | None, after: str, body: str = r"[\s\S]*") -> re.Pattern[str]:
    """A hole that comes again must be filled with the same."""
    parts = [before, "\2one", *((between, "\2two") if between is not None else ()), after]
    seen: set[str] = set()
    return re.compile("".join(_part(part, body, seen) for part in parts))


def _part(part: str, body: str, seen: set[str]) -> str:
    if part.startswith("\2"):
        return f"(?P<{part[1:]}>{body})"
    pieces: list[str] = []
    for piece in re.split(f"([{CODE}{DIRECTORY}{ANY}])", part):
        if piece == ANY:
            pieces.append(r"\S*?")
            continue
        name, hole = _HOLES.get(piece, ("", ""))
        if not name:
            pieces.append(re.escape(piece))
        else:
            pieces.append(f"(?P={name})" if name in seen else f"(?P<{name}>{hole})")
            seen.add(name)
    return "".join(pieces)
