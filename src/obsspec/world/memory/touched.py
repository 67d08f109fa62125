"""What a call reads and changes, as names of resources: file paths, the shell's own state, Python variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from obsspec.values import ToolCall
from obsspec.world.effects import ToolKind, effects
from obsspec.world.memory.calls import Reading, is_sql
from obsspec.world.memory.names import names_of
from obsspec.world.shell.paths import resolve


@dataclass(frozen=True, slots=True)
class Touched:
    """None: anything. `late` is read when what is written here is used. Paths contain what is below them."""

    reads: frozenset[str] | None
    writes: frozenset[str] | None
    volatile: bool = False
    late: frozenset[str] = frozenset()


SHELL = "shell:"  # variables, functions, options of the session
_FILES = re.compile(r"\bopen\(|\b(?:os|subprocess|pathlib|shutil|sqlite3)\b")
_CHANCE = re.compile(
    r"\b(?:time\.time|perf_counter|monotonic|process_time|uuid[14]|urandom|getpid)\b|\b(?:now|today)\(|"
    r"\brandom\.(?!Random\(|RandomState\()\w|\b(?:randint|shuffle|choices?|default_rng\(\)|secrets)\b"
)
_CD = re.compile(r"\A\s*cd\s+([\w./~+-]+)\s*(?:;|&&|\n|\Z)")
_MOVES = re.compile(r"\b(?:cd|pushd|popd|source|eval)\b|(?:^|[;&|{(]\s*)\.\s", re.MULTILINE)
_NOTHING = Touched(frozenset(), frozenset())


def touched(call: ToolCall, reading: Reading, cwd: str | None) -> Touched:
    if reading.kind is ToolKind.PYTHON:
        return _python(reading.normal)
    if reading.kind is ToolKind.OTHER:
        return _any(call, cwd)
    return _script(reading, cwd)


@lru_cache(maxsize=8192)
def _script(reading: Reading, cwd: str | None) -> Touched:
    if reading.kind is ToolKind.SQL and not is_sql(reading.normal):
        return _NOTHING  # the tool complains and runs nothing
    return _any(ToolCall(reading.name, {"input": reading.normal}), cwd)


def _any(call: ToolCall, cwd: str | None) -> Touched:
    found = effects(call, cwd)
    reads, writes = found.reads, found.writes
    if reads is not None and found.reads_shell:
        reads |= {SHELL}
    if writes is not None and found.changes_shell:
        writes |= {SHELL}
    return Touched(reads, writes, found.volatile)


def directory_after(reading: Reading, cwd: str | None, touch: Touched, failed: bool) -> str | None:
    """Where the shell is after a call; None if nobody knows."""
    if reading.kind is not ToolKind.SHELL or (touch.writes is not None and SHELL not in touch.writes):
        return cwd
    if not _MOVES.search(reading.normal):
        return cwd
    found = _CD.match(reading.normal)
    if found is None or "cd" in reading.normal[found.end() :] or "~" in found[1] or found[1] == "-":
        return None
    return cwd if failed else resolve(found[1], cwd)


@lru_cache(maxsize=8192)
def _python(code: str) -> Touched:
    names = names_of(code)
    volatile = _CHANCE.search(code) is not None and "seed(" not in code
    if names is None or _FILES.search(code):
        return Touched(None, None, volatile)
    return Touched(_variables(names.reads), _variables(names.writes), volatile, _variables(names.late))


def _variables(names: frozenset[str]) -> frozenset[str]:
    return frozenset(f"name:{name}" for name in names)
