"""One line of `ls -l`."""

from __future__ import annotations

import re

from obsspec.world.shadow.facts import Kind, Known

_LINE = re.compile(
    r"(?:\s*\d+\s+)?(?:\s*[\d.]+[KMG]?\s+)?(?P<kind>[-dl])(?P<mode>[r-][w-][xsS-][r-][w-][xsS-][r-][w-][xtT-])[.+]?\s+\d+\s+"
    r"\S+\s+(?:\S+\s+)?(?P<size>[\d.]+[KMG]?)\s+(?P<time>\w{3}\s+\d+\s+[\d:]{4,5})\s+(?P<name>.*)"
)
_KINDS = {"-": Kind.FILE, "d": Kind.DIRECTORY, "l": Kind.LINK}
_BITS = {"r": 4, "w": 2, "x": 1, "s": 1, "t": 1}


def read_long(line: str) -> tuple[str, Known] | None:
    """Name and what is known of it; None if it is no such line."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    kind, name, target = _KINDS[match["kind"]], match["name"], None
    if kind is Kind.LINK and " -> " in name:
        name, _, target = name.partition(" -> ")
    exact = kind is Kind.FILE and match["size"].isdigit()
    size = int(match["size"]) if exact else None
    return name, Known(kind, size, _mode(match["mode"]), " ".join(match["time"].split()), target)


def _mode(letters: str) -> int:
    mode = 0
    for index, letter in enumerate(letters):
        mode |= _BITS.get(letter, 0) << (6 - index // 3 * 3)
        if letter in "sS":
            mode |= 0o4000 if index == 2 else 0o2000
        elif letter in "tT":
            mode |= 0o1000
    return mode
