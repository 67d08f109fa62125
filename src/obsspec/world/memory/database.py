"""The SQLite file behind a store: counters and texts, safe for several processes, bounded, and only ever our own.

Two tables. `cells` holds counters, each under a key and a field; increments commute, so processes that write at the
same time only add up. `texts` holds each text once, compressed when long, under its digest. Both carry the time they
were last useful; eviction removes what is older than a moment from both, and a text is never older than a cell that
names it.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from obsspec.values import ConfigError

APPLICATION = 0x6F627370  # "obsp"
SCHEMA = 1
COMPRESS_FROM = 512  # characters
PAGE_CELLS = 512  # of one key, the most recently useful ones
_BUSY_MS = 5_000
_EVICT_SHARE = 5  # a fifth of the cells goes at a time

_TABLES = """
CREATE TABLE cells (key BLOB, field BLOB, count REAL NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (key, field))
WITHOUT ROWID;
CREATE INDEX cells_last ON cells (last);
CREATE TABLE texts (digest BLOB PRIMARY KEY, packed INTEGER NOT NULL, body BLOB NOT NULL, last INTEGER NOT NULL)
WITHOUT ROWID;
CREATE INDEX texts_last ON texts (last);
"""
_ADD = """
INSERT INTO cells VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, last = max(last, excluded.last)
"""
_PUT = "INSERT INTO texts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = max(last, excluded.last)"

Cell = tuple[float, float]  # count, time it was last useful in microseconds
Changes = Mapping[bytes, Mapping[bytes, Cell]]  # key -> field -> (amount to add, time)


class Database:
    """One connection to read, one to write. Only one thread at a time may use each.

    Opening raises `ConfigError` for a file that is not such a database, or can not be used. The file is crash safe:
    a process killed at any moment loses at most what it had not yet written.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"can not use the memory file {path}: {error}; choose another file") from error
        try:
            self._claim()
            self._reader = self._connect()
        except (sqlite3.Error, ConfigError) as error:
            self._writer.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"can not use the memory file {path}: {error}; choose another file") from error

    def load(self, key: bytes) -> dict[bytes, Cell]:
        rows = self._reader.execute(
            "SELECT field, count, last FROM cells WHERE key = ? ORDER BY last DESC LIMIT ?", (key, PAGE_CELLS)
        )
        return {field: (count, last) for field, count, last in rows}

    def known(self, keys: Collection[bytes]) -> set[bytes]:
        """Those of the keys that have cells."""
        marks = ", ".join("?" * len(keys))
        rows = self._reader.execute(f"SELECT DISTINCT key FROM cells WHERE key IN ({marks})", tuple(keys))
        return {row[0] for row in rows}

    def text(self, name: bytes) -> str | None:
        row = self._reader.execute("SELECT packed, body FROM texts WHERE digest = ?", (name,)).fetchone()
        if row is None:
            return None
        packed, body = row
        return (zlib.decompress(body) if packed else bytes(body)).decode("utf-8", "surrogatepass")

    def version(self) -> int:
        """Differs from the last answer when another connection has written since; ours do not count."""
        return self._pragma("data_version")

    def stage(self, changes: Changes, texts: Mapping[bytes, tuple[str, int]]) -> None:
        """Write, but do not commit. Raises `sqlite3.Error`; then nothing is written."""
        with self._whole():
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.executemany(_PUT, (_packed(name, *text) for name, text in texts.items()))
            self._writer.executemany(_ADD, _rows(changes))

    def commit(self) -> None:
        """Raises `sqlite3.Error`; then nothing is written."""
        with self._whole():
            self._writer.execute("COMMIT")

    def tidy(self) -> None:
        """Evict what was least recently useful until the file's content is within its bound; shorten the log."""
        while self._used() > self._max_bytes and self._evict():
            pass
        self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    @contextmanager
    def _whole(self) -> Generator[None]:
        """All of a transaction or nothing."""
        try:
            yield
        except sqlite3.Error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _connect(self) -> sqlite3.Connection:
        link = sqlite3.connect(self.path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
        link.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return link

    def _claim(self) -> None:
        """Make the file ours if it is empty; refuse it if it is somebody else's."""
        self._writer.execute("BEGIN IMMEDIATE")
        application = self._pragma("application_id")
        schema = self._pragma("user_version")
        empty = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty and application == 0:
            for statement in filter(str.strip, _TABLES.split(";")):
                self._writer.execute(statement)
            self._writer.execute(f"PRAGMA application_id = {APPLICATION}")
            self._writer.execute(f"PRAGMA user_version = {SCHEMA}")
        self._writer.execute("COMMIT")
        if not empty and application != APPLICATION:
            raise ConfigError(f"{self.path} is a database of something else: choose another memory file")
        if not empty and schema != SCHEMA:
            raise ConfigError(f"{self.path} has memory schema {schema}, not {SCHEMA}: choose another memory file")
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = NORMAL")
        self._writer.execute("PRAGMA wal_autocheckpoint = 0")  # `tidy` does it, outside of the store's lock

    def _used(self) -> int:
        return (self._pragma("page_count") - self._pragma("freelist_count")) * self._pragma("page_size")

    def _evict(self) -> bool:
        """Remove about a fifth of the cells, and the texts nobody has needed since; False if nothing is left."""
        cells = self._writer.execute("SELECT count(*) FROM cells").fetchone()[0]
        row = self._writer.execute(
            "SELECT last FROM cells ORDER BY last LIMIT 1 OFFSET ?", (cells // _EVICT_SHARE,)
        ).fetchone()
        if row is None:
            return False
        with self._whole():
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.execute("DELETE FROM cells WHERE last <= ?", row)
            self._writer.execute("DELETE FROM texts WHERE last <= ?", row)
            self._writer.execute("COMMIT")
        return True

    def _pragma(self, name: str) -> int:
        return int(self._writer.execute(f"PRAGMA {name}").fetchone()[0])


def _packed(name: bytes, text: str, last: int) -> tuple[bytes, int, bytes, int]:
    body = text.encode("utf-8", "surrogatepass")
    if len(body) < COMPRESS_FROM:
        return name, 0, body, last
    return name, 1, zlib.compress(body, 6), last


def _rows(changes: Changes) -> Iterable[tuple[bytes, bytes, float, int]]:
    for key, fields in changes.items():
        for field, (amount, last) in fields.items():
            yield key, field, amount, int(last)
