"""Facts from `ls`, `find` and `du`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from obsspec.world.shadow.facts import Exists, Kind, Known
from obsspec.world.shadow.reading.commands import Words
from obsspec.world.shadow.reading.contents import inner
from obsspec.world.shadow.reading.found import Found
from obsspec.world.shadow.reading.long import read_long
from obsspec.world.shell.names import names

BOTH = (Kind.FILE, Kind.DIRECTORY)
_TOTAL = re.compile(r"total [\d.]+[KMG]?")
_TYPES = {"f": Kind.FILE, "d": Kind.DIRECTORY, "l": Kind.LINK}
_ONE = names(
    "-type -name -iname -size -mtime -mmin -atime -amin -ctime -cmin -newer -path -ipath -regex -iregex -perm -user "
    "-group -maxdepth -mindepth -links -regextype"
)
_NONE = names("-empty -not ! -o -or -a -and -print -executable -readable -writable -follow -depth -xdev -prune -quit")
_EITHER = names("-not ! -o -or -prune")
_DISK = re.compile(r"[\d.]+[KMG]?\t(.+)")


def read_ls(command: Words, lines: Sequence[str], found: Found, *, whole: bool) -> None:
    """`whole`: nothing was filtered out of the lines."""
    letters, operands = command.options("IwT")
    if "I" in letters or any(word.startswith(("--ignore", "--hide")) for word in command.words):
        return
    long = bool(set(letters) & set("lno"))
    if "d" in letters:
        for line in lines:
            _entry(line, "", letters, long, found)
        return
    single = len(operands) <= 1 and "R" not in letters and not set("".join(operands)) & set("*?[")
    start = operands[0] if operands else "."
    for directory, entries in _sections(lines, start if single else None).items():
        if (
            directory is None
            or entries == [directory]
            or (long and len(entries) == 1 and entries[0].endswith(f" {start}"))
        ):
            for line in entries:
                _entry(line, "", letters, long, found)
            continue
        found.exists(directory, Known(Kind.DIRECTORY))
        good = [_entry(line, directory, letters, long, found) for line in entries]
        if whole and all(good):
            found.complete(directory, BOTH, hidden=bool(set(letters) & set("aAf")), below=False)


def _sections(lines: Sequence[str], single: str | None) -> dict[str | None, list[str]]:
    sections: dict[str | None, list[str]] = {} if single is None else {single: []}
    current = single
    for line in lines:
        if not line or _TOTAL.fullmatch(line):
            continue
        if single is None and line.endswith(":") and read_long(line) is None:
            current = line[:-1]
            sections[current] = []
        else:
            sections.setdefault(current, []).append(line)
    return sections


def _entry(line: str, directory: str, letters: str, long: bool, found: Found) -> bool:
    known = Known()
    if long:
        read = read_long(line)
        if read is None:
            return False
        line, known = read
    else:
        for letter in "is":
            if letter in letters:
                line = re.sub(r"^\s*[\d.]+[KMG]?\s+", "", line)
        if "F" in letters or "p" in letters:
            if line.endswith("/"):
                known = Known(Kind.DIRECTORY)
            line = line.rstrip("/" if "F" not in letters else "/*@|=")
    if line in (".", "..") and not long:
        return True
    if line.endswith(":"):
        return False
    found.exists(posixpath.join(directory, line), known)
    return True


def read_find(command: Words, lines: Sequence[str], found: Found, *, whole: bool, sorted_: bool) -> None:
    parsed = _parse_find(command.words)
    if parsed is None:
        return
    roots, tests, executed, listing = parsed
    types = {test[1] for test in tests if test[0] == "-type" and len(test) > 1}
    certain = not any(test[0] in _EITHER for test in tests)
    kind = _TYPES.get(next(iter(types))) if len(types) == 1 and certain else None
    if listing or executed:
        lines = [re.sub(r"^\s*\d+\s+\d+\s+", "", line) for line in lines] if listing else lines
        before = len(found.facts)
        inner(Words(executed or ("ls", "-l")), lines, found, files=kind is Kind.FILE)
        if not sorted_ and (listing or executed[0] != "ls"):
            found.ordered(fact.path for fact in found.facts[before:] if isinstance(fact, Exists))
        return
    below = [line for line in lines if any(line == root or line.startswith(root.rstrip("/") + "/") for root in roots)]
    for line in below:
        found.exists(line, Known(kind))
    if not sorted_:
        found.ordered(below)
    depths = [test[1] for test in tests if test[0] == "-maxdepth" and len(test) > 1]
    if (
        whole
        and certain
        and all(test[0] in ("-type", "-print", "-maxdepth") for test in tests)
        and depths in ([], ["1"])
    ):
        for root in roots:
            found.complete(root, BOTH if kind is None else (kind,), hidden=True, below=not depths)


def _parse_find(words: Sequence[str]) -> tuple[list[str], list[list[str]], tuple[str, ...], bool] | None:
    """Roots, tests, what is executed, whether it lists in long format. None for what is not followed."""
    at = 1
    while at < len(words) and words[at] in ("-L", "-H", "-P"):
        at += 1
    roots: list[str] = []
    while at < len(words) and not words[at].startswith(("-", "(", "!")):
        roots.append(words[at])
        at += 1
    tests: list[list[str]] = []
    executed: tuple[str, ...] = ()
    listing = False
    while at < len(words):
        word = words[at]
        if word in ("-exec", "-execdir"):
            end = next((i for i in range(at, len(words)) if words[i] in (";", "+")), len(words))
            executed, at = tuple(words[at + 1 : end]), end + 1
        elif word == "-ls":
            listing, at = True, at + 1
        elif word in _ONE or word in _NONE:
            size = 2 if word in _ONE else 1
            tests.append(list(words[at : at + size]))
            at += size
        else:
            return None
    return roots or ["."], tests, executed, listing


def read_du(command: Words, lines: Sequence[str], found: Found) -> None:
    letters, operands = command.options("dBt")
    only_directories = not set(letters) & set("as") and not any("*" in operand for operand in operands)
    for line in lines:
        match = _DISK.fullmatch(line)
        if match and match[1] != "total":
            found.exists(match[1], Known(Kind.DIRECTORY if only_directories else None))
