"""Recorded rows: a JSONL file, plain or gzip, with one tool call a line.

A row has `task`, `traj`, `step`, `tool`, `args` and `out`; `kind`, `model`, `replay_out` and `replay_s` are optional.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from obsspec.values import ConfigError, Observation
from obsspec.worldeval.emptiness import EmptyTexts
from obsspec.worldeval.recorded import Recorded, to_call

_REQUIRED: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("task", (str,), "a text"),
    ("traj", (str, int), "a text"),
    ("step", (int,), "a whole number"),
    ("tool", (str,), "a text"),
    ("args", (str, dict), "a text or a JSON object"),
    ("out", (str,), "a text"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One rollout of a data set, where its turns are, and how many calls were recorded before it."""

    task: str
    traj: str
    model: str
    where: list[tuple[int, int]] = field(repr=False)  # (step, offset); of a run folder (0, offset of its line)
    calls: int = 0
    first: int = 0


class RowsFile:
    """A file of recorded rows, read once to check and index it, then rollout by rollout: memory holds the index only.

    Raises `ConfigError` for the first row that is not one: file, line, field and fix. Close it to drop its copy.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name.removesuffix(".gz").removesuffix(".jsonl")
        self._path = path
        self._file = _plain(path)
        self._empty = EmptyTexts()
        try:
            self.rollouts = self._index()
        except BaseException:
            self.close()
            raise

    @property
    def empty_texts(self) -> dict[str, str]:
        return self._empty.usual()

    def read(self, entry: Entry) -> tuple[Recorded, ...]:
        return tuple(self._row(offset) for _, offset in entry.where)

    def close(self) -> None:
        self._file.close()

    def _row(self, offset: int) -> Recorded:
        self._file.seek(offset)
        return to_recorded(json.loads(self._file.readline()))

    def _index(self) -> tuple[Entry, ...]:
        found: dict[tuple[str, str, str], Entry] = {}
        for number, offset, row in self._rows():
            task, traj, model = row["task"], str(row["traj"]), str(row.get("model", ""))
            entry = found.setdefault((task, traj, model), Entry(task, traj, model, []))
            entry.where.append((row["step"], offset))
            self._empty.count(row["tool"], row["out"])
            if len(entry.where) > 1 and entry.where[-2][0] >= row["step"]:
                raise ConfigError(
                    f"{self._path} line {number}: step {row['step']} of {traj!r} comes after step "
                    f"{entry.where[-2][0]}; the rows of one traj must be in the order of their steps"
                )
        if not found:
            raise ConfigError(f"{self._path} holds no row")
        return counted(Entry(e.task, e.traj, e.model, e.where, len(e.where)) for e in found.values())

    def _rows(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        self._file.seek(0)
        offset = 0
        for number, line in enumerate(self._file, 1):
            if line.strip():
                yield number, offset, check_row(line, f"{self._path} line {number}")
            offset += len(line)


def counted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The same rollouts, with the number of each one's first call."""
    first = 0
    found: list[Entry] = []
    for entry in entries:
        found.append(replace(entry, first=first))
        first += entry.calls
    return tuple(found)


def check_row(line: bytes, where: str) -> dict[str, Any]:
    """The row that a line holds. Raises `ConfigError` naming the field and the fix."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no JSON ({error}); every line must be one JSON object") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: no JSON object; every line must be one")
    fields = cast("dict[str, Any]", row)
    for name, types, what in _REQUIRED:
        if name not in fields:
            raise ConfigError(f"{where}: no field {name!r}; add it, {what}")
        if not isinstance(fields[name], types) or isinstance(fields[name], bool):
            raise ConfigError(f"{where}: {name!r} is {_type(fields[name])}; make it {what}")
    for name, types in (("replay_out", (str,)), ("replay_s", (int, float))):
        if fields.get(name) is not None and not isinstance(fields[name], types):
            raise ConfigError(f"{where}: {name!r} is {_type(fields[name])}; correct it or leave it out")
    return fields


def to_recorded(row: Mapping[str, Any]) -> Recorded:
    seconds = row.get("replay_s")
    return Recorded(
        kind=str(row.get("kind", "")),
        task=row["task"],
        traj=str(row["traj"]),
        model=str(row.get("model", "")),
        step=row["step"],
        calls=(to_call(row["tool"], row["args"]),),
        observations=(Observation(row["out"]),),
        replay_s=None if seconds is None else float(seconds),
        replay_output=row.get("replay_out"),
    )


def _type(value: object) -> str:
    return {"NoneType": "null", "str": "a text", "bool": "true or false"}.get(type(value).__name__, repr(value)[:40])


def _plain(path: Path) -> IO[bytes]:
    """The file, or a decompressed copy of it without a name: rollouts are read in any order."""
    try:
        if path.suffix != ".gz":
            return path.open("rb")
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the data set
        try:
            with gzip.open(path, "rb") as packed:
                shutil.copyfileobj(packed, copy, 1 << 20)
        except BaseException:
            copy.close()
            raise
        return copy
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ConfigError(f"{path} is no whole gzip file: copy it again") from None
    except OSError as error:
        raise ConfigError(f"can not read {path}: {error.strerror or error}") from error
