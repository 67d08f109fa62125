"""The Parquet file of an evaluation: one row for each (data set, protocol, call, source), enough for every figure."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (pyarrow is not typed)
from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from obsspec.values import ConfigError

BATCH = 20_000
TEXT = 400  # characters of commands and texts that are kept, for reading


@dataclass(frozen=True, slots=True)
class Row:
    """What one source said of one call. Seconds; None where not known.

    `call` numbers the calls of a data set, in recorded order. `rank`: of the candidate that was exactly right, 0 is the
    first; -1 none. `said_by`: the first candidate's own source. `trivial`: the tool printed nothing. `repeat_equal`:
    the same task, history and call was seen before and had this very text. `replay_equal`: so had it run again.
    `predicted`: the first candidate where it was wrong.
    """

    data: str
    protocol: str
    source: str
    call: int
    kind: str
    model: str
    task: str
    traj: str
    step: int
    test: bool
    tool: str
    program: str
    candidates: int
    rank: int
    said_by: str
    confidence: float | None
    latency_s: float
    total_s: float
    failed: bool
    error: str
    trivial: bool
    tool_s: float | None
    replay_s: float | None
    replay_equal: bool | None
    repeat_equal: bool | None
    command: str
    expected: str
    predicted: str


_TYPES = {"str": "dictionary", "int": pa.int32(), "float": pa.float64(), "bool": pa.bool_()}


def _type(annotation: str) -> Any:
    kind = _TYPES[annotation.partition(" ")[0]]
    return pa.dictionary(pa.int32(), pa.string()) if kind == "dictionary" else kind


NAMES = tuple(field.name for field in fields(Row))
SCHEMA = pa.schema([(field.name, _type(str(field.type))) for field in fields(Row)])


class RowWriter:
    """Collects rows and writes them in batches."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            columns = {name: [getattr(row, name) for row in self._rows] for name in NAMES}
            self._writer.write_table(pa.Table.from_pydict(columns, schema=SCHEMA))
            self._rows.clear()


@contextmanager
def open_rows(path: Path) -> Generator[RowWriter, None, None]:
    """A new file. However the context is left, the rows so far are in it. Raises `ConfigError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            rows = RowWriter(writer)
            try:
                yield rows
            finally:
                rows.flush()
    except OSError as error:
        raise ConfigError(f"can not write {path}: {error.strerror or error}") from error


def read_rows(path: Path, columns: Sequence[str] | None = None) -> Any:
    """The rows as a pyarrow table."""
    return pq.read_table(path, columns=list(columns) if columns else None, schema=SCHEMA)


def cut(text: str) -> str:
    """The head of a text, as Parquet can hold it."""
    return text[:TEXT].encode("utf-8", "replace").decode()
