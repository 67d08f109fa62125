"""What backslashes and dollar signs mean in the three kinds of quoting."""

from __future__ import annotations

import re
from collections.abc import Iterator

from obsspec.world.shell.tree import Literal, Opaque, Part

_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"} | {
    character: character for character in "\\'\"?"
}
_ANSI_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|(.))", re.DOTALL)


def unescape_plain(text: str) -> Iterator[Part]:
    """Text outside quotes: an escaped character is quoted, an escaped line end is nothing."""
    at = 0
    while at < len(text):
        stop = text.find("\\", at)
        if stop < 0 or stop + 1 >= len(text):
            yield Literal(text[at:])
            return
        if stop > at:
            yield Literal(text[at:stop])
        if text[stop + 1] != "\n":
            yield Literal(text[stop + 1], quoted=True)
        at = stop + 2


def unescape_double(text: str) -> Literal:
    """Text inside double quotes: a backslash is special only before these characters."""
    return Literal(re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text), quoted=True)


def unescape_document(text: str) -> Literal:
    """Text of a here-document: as in double quotes, but a double quote is nothing special."""
    return Literal(re.sub(r"\\([$`\\\n])", lambda m: "" if m[1] == "\n" else m[1], text), quoted=True)


def ansi_c(text: str) -> Part:
    """The inside of `$'...'`."""

    def one(found: re.Match[str]) -> str:
        octal, hexadecimal, point, character = found.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if hexadecimal or point:
            return chr(int(hexadecimal or point, 16))
        return _ANSI[character]

    try:
        value = _ANSI_ESCAPE.sub(one, text)
    except KeyError:
        return Opaque(text, quoted=True)
    if "\0" in value or (not value.isascii() and value != text):  # bytes, not characters
        return Opaque(text, quoted=True)
    return Literal(value, quoted=True)
