"""From a command and what it printed to facts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obsspec.world.shadow.facts import Exists, Fact, StartsIn
from obsspec.world.shadow.reading.commands import Readable, Words, readable
from obsspec.world.shadow.reading.contents import SUMS, inner, read_whole
from obsspec.world.shadow.reading.errors import take_errors
from obsspec.world.shadow.reading.found import Found
from obsspec.world.shadow.reading.listings import read_du, read_find, read_ls

MAX_CHARACTERS = 60_000  # longer outputs say more than is worth laying down
MAX_FACTS = 600
_ONLY = re.compile(r"Only in (.+?): (.+)")
_SAME_LINES = frozenset({"cat", "less", "more", "tee"})


def read_facts(script: str, output: str, directory: str) -> list[Fact]:
    """Facts about the state in which `script` ran, at most 600. Never raises.

    Programs end what they print with a line end; a text without one is most likely a message of the harness.
    """
    if len(output) > MAX_CHARACTERS or (output and not output.endswith("\n")):
        return []
    found = Found(directory)
    lines = output.split("\n")
    if lines[-1] == "":
        lines.pop()
    rest = take_errors(lines, found)
    pipeline = readable(script, directory)
    if pipeline is not None:
        found.directory = pipeline.directory
        _read(pipeline, output, rest, found, whole=len(rest) == len(lines))
    return list(dict.fromkeys(found.facts))[:MAX_FACTS]


def _read(pipeline: Readable, output: str, lines: Sequence[str], found: Found, *, whole: bool) -> None:
    first, *rest = pipeline.stages
    executed: Words | None = None
    if rest and rest[0].name == "xargs" and first.name in ("find", "ls"):
        words = list(rest.pop(0).words[1:])
        while words and words[0].startswith("-"):
            words.pop(0)
        executed = Words(tuple(words)) if words else Words(("echo",))
    filtered = _filtered(rest)
    if filtered is None:
        return
    if executed is not None:
        before = len(found.facts)
        inner(executed, lines, found, files=False)
        if (
            first.name == "find"
            and executed.name != "ls"
            and not any(stage.name == "sort" for stage in pipeline.stages)
        ):
            found.ordered(fact.path for fact in found.facts[before:] if isinstance(fact, Exists))
        return
    whole = whole and not filtered
    sorted_ = any(stage.name == "sort" for stage in rest)
    _program(first, output, lines, found, whole=whole, alone=not rest, sorted_=sorted_)


def _program(
    first: Words, output: str, lines: Sequence[str], found: Found, *, whole: bool, alone: bool, sorted_: bool
) -> None:
    match first.name:
        case "find":
            read_find(first, lines, found, whole=whole, sorted_=sorted_)
        case "ls" | "dir":
            read_ls(first, lines, found, whole=whole)
        case "du":
            read_du(first, lines, found)
        case "cat" | "head" | "tail" if whole and alone:
            read_whole(first, output, found)
        case "wc" | "grep" | "egrep" | "fgrep":
            inner(first, lines, found, files=True)
        case "pwd" if whole and alone and len(lines) == 1 and lines[0].startswith("/"):
            found.facts.append(StartsIn(lines[0]))
        case "diff":
            for line in lines:
                if match := _ONLY.fullmatch(line):
                    found.exists(f"{match[1]}/{match[2]}")
        case name if name in SUMS:
            inner(first, lines, found, files=True)
        case _:
            pass


def _filtered(stages: Sequence[Words]) -> bool | None:
    """Whether the stages leave lines out. None if they change lines."""
    filtered = False
    for stage in stages:
        letters, _ = stage.options("kt")
        if stage.name == "sort" and "u" not in letters:
            continue
        if stage.name in _SAME_LINES and not letters:
            continue
        grep = stage.name in ("grep", "egrep", "fgrep") and not set(letters) & set("coqlLn")
        if not (stage.name in ("head", "tail", "sort") or grep or (stage.name == "uniq" and len(stage.words) == 1)):
            return None
        filtered = True
    return filtered
