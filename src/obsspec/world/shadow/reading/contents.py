"""Facts about what is in files: `cat`, `head`, `wc`, checksums, `grep`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obsspec.world.shadow.facts import Kind, Known
from obsspec.world.shadow.reading.commands import Words
from obsspec.world.shadow.reading.found import Found
from obsspec.world.shadow.reading.long import read_long
from obsspec.world.shell.names import names

SUMS = names("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum")
_SUM = re.compile(r"([0-9a-f]{32,128}) [ *](.+)")
_GREP = re.compile(r"(/[^:]+):")
_PATTERN = frozenset("*?[$~`")
_FILE = Known(Kind.FILE)


def read_whole(command: Words, output: str, found: Found) -> None:
    """`cat FILE`, or `head` and `tail` where the file is shorter than what they show."""
    letters, operands = command.options("nc")
    operands = tuple(operand for operand in operands if not operand.isdigit())
    if len(operands) != 1 or set(operands[0]) & _PATTERN or operands[0] == "-" or operands[0].startswith("/proc"):
        return
    text = " ".join(command.words[1:])
    wanted = re.search(r"-n?\s*(\d+)", text)
    limit = int(wanted[1]) if wanted else 10
    whole = command.name == "cat" and not letters
    whole = whole or (
        command.name in ("head", "tail") and "c" not in letters and "+" not in text and output.count("\n") < limit
    )
    content = output.encode("utf-8", "surrogateescape") if whole and "\ufffd" not in output else None
    found.exists(operands[0], Known(Kind.FILE, None if content is None else len(content), content=content))


def inner(command: Words, lines: Sequence[str], found: Found, *, files: bool) -> None:
    """Lines of a program that names files in its output, started with many of them. `files`: they are regular files."""
    letters, _ = command.options()
    if command.name in SUMS:
        _sums(command.name, lines, found)
    elif command.name == "wc":
        _counts(letters, lines, found)
    elif command.name == "ls" and "l" in letters:
        for line in lines:
            if (read := read_long(line)) is not None:
                found.exists(*read)
    elif command.name in ("ls", "echo", "realpath") and not letters.strip("1"):
        for line in lines:
            if line.startswith(("/", "./")):
                found.exists(line, _FILE if files else Known())
    elif command.name in ("grep", "egrep", "fgrep"):
        for line in lines:
            match = _GREP.match(line)
            if match or ("l" in letters and line.startswith("/")):
                found.exists(match[1] if match else line, _FILE)


def _sums(program: str, lines: Sequence[str], found: Found) -> None:
    for line in lines:
        match = _SUM.fullmatch(line)
        if match and match[2] != "-":
            found.exists(match[2], Known(Kind.FILE, sums=((program, match[1]),)))


def _counts(letters: str, lines: Sequence[str], found: Found) -> None:
    columns = [letter for letter in "lwmcL" if letter in letters] or ["l", "w", "c"]
    pattern = re.compile(rf"\s*((?:\d+\s+){{{len(columns)}}})(\S.*)")
    for line in lines:
        match = pattern.fullmatch(line)
        if match and match[2] != "total":
            counts = dict(zip(columns, map(int, match[1].split()), strict=True))
            found.exists(match[2], Known(Kind.FILE, counts.get("c"), counts=tuple(counts.items())))
