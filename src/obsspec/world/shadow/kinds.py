"""What sort of output it is: how far it can depend on what is not known."""

from __future__ import annotations

import re
from enum import StrEnum

from obsspec.world.shadow.filler import LETTERS


class OutputKind(StrEnum):
    EMPTY = "empty"
    SYNTAX = "syntax"  # the script was not even started
    MISSING = "missing"  # a program is not there
    ERROR = "error"  # messages only
    NUMBER = "number"
    LISTING = "listing"  # paths
    DETAILS = "details"  # sizes, times, owners, checksums of paths
    CONTENT = "content"


_SYNTAX = re.compile(r": (?:-c: )?line \d+: (?:syntax error|unexpected EOF)|^\w+: \d+: Syntax error", re.MULTILINE)
_MISSING = re.compile(r": (?:command )?not found$", re.MULTILINE)
_MESSAGE = re.compile(r"(?:\S*/)?[\w.+-]+: (?:\S.*: )?\D|Try '|usage:|Usage:")
_NUMBERS = re.compile(r"[\d\s.,%/:-]*\Z")
_ZERO = re.compile(r"(?:[^\s:]+:)?\s*0?\s*")
_LISTING = re.compile(r"(?:\.{0,2}/|[\w.-]+/)\S*|[\w+-]+\.\w{1,5}")
_DETAILS = re.compile(r"[-dl][rwxsStT-]{9}|[0-9a-f]{32}|\s*\d+\s+\S*[/.]|[\d.]+[KMG]?\t|total \d")
_FILLER = re.compile(rf"[{LETTERS}]{{5,}}|qz[xd]\d")


def output_kind(text: str) -> OutputKind:
    if not text.strip():
        return OutputKind.EMPTY
    if _SYNTAX.search(text):
        return OutputKind.SYNTAX
    if _MISSING.search(text):
        return OutputKind.MISSING
    if _NUMBERS.match(text):
        return OutputKind.NUMBER
    lines = text.rstrip("\n").split("\n")[:50]
    for kind, pattern in (
        (OutputKind.ERROR, _MESSAGE),
        (OutputKind.DETAILS, _DETAILS),
    ):
        if all(map(pattern.match, lines)):
            return kind
    return OutputKind.LISTING if all(map(_LISTING.fullmatch, lines)) else OutputKind.CONTENT


def shows_filler(text: str) -> bool:
    """Whether content or names that were made up can be read in it."""
    return _FILLER.search(text) is not None


def shows_nothing(text: str) -> bool:
    """Whether a search has found nothing: no output, or counts of zero."""
    return not text.strip() or all(map(_ZERO.fullmatch, text.rstrip("\n").split("\n")))
