"""Declarative checks: each is data, evaluated only on the final file tree and the final answer."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
import tempfile
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from obsspec.sandbox.spec import EntryKind, Tree

Value = str | int | float | None


def file_bytes(tree: Tree, path: str) -> bytes | None:
    """Content of the regular file at `path`; None when there is none."""
    entry = tree.get(path)
    return entry.content if entry is not None and entry.kind is EntryKind.FILE else None


@dataclass(frozen=True, slots=True)
class FileIs:
    """A regular file with exactly this content."""

    path: str
    content: bytes

    def holds(self, tree: Tree, answer: str | None) -> bool:
        return file_bytes(tree, self.path) == self.content


@dataclass(frozen=True, slots=True)
class IsDirectory:
    path: str

    def holds(self, tree: Tree, answer: str | None) -> bool:
        entry = tree.get(self.path)
        return entry is not None and entry.kind is EntryKind.DIRECTORY


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing at this path."""

    path: str

    def holds(self, tree: Tree, answer: str | None) -> bool:
        return self.path not in tree


@dataclass(frozen=True, slots=True)
class ModeIs:
    """The permission bits of a path."""

    path: str
    mode: int

    def holds(self, tree: Tree, answer: str | None) -> bool:
        entry = tree.get(self.path)
        return entry is not None and entry.mode == self.mode


@dataclass(frozen=True, slots=True)
class LinkTo:
    """A symbolic link whose stored target is `target`."""

    path: str
    target: str

    def holds(self, tree: Tree, answer: str | None) -> bool:
        entry = tree.get(self.path)
        return entry is not None and entry.kind is EntryKind.LINK and entry.content == self.target.encode()


@dataclass(frozen=True, slots=True)
class JsonIs:
    """A file whose JSON value equals the one written in `text`, whatever the layout and key order."""

    path: str
    text: str

    def holds(self, tree: Tree, answer: str | None) -> bool:
        content = file_bytes(tree, self.path)
        if content is None:
            return False
        try:
            # Compared as canonical text: `1 == True` and `1 == 1.0` in Python, but not in JSON.
            return _canonical(json.loads(content)) == _canonical(json.loads(self.text))
        except ValueError:
            return False


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True, slots=True)
class SqliteQuery:
    """A database on which `sql` returns exactly `rows`, in order."""

    path: str
    sql: str
    rows: tuple[tuple[Value, ...], ...]

    def holds(self, tree: Tree, answer: str | None) -> bool:
        content = file_bytes(tree, self.path)
        return content is not None and _query(content, self.sql) == self.rows


def _query(database: bytes, sql: str) -> tuple[tuple[Value, ...], ...] | None:
    with tempfile.TemporaryDirectory(prefix="obsspec-check-") as directory:
        path = Path(directory) / "copy.db"
        path.write_bytes(database)
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                return tuple(tuple(row) for row in connection.execute(sql))
        except sqlite3.Error:
            return None


@dataclass(frozen=True, slots=True)
class TarContains:
    """A tar archive (compressed or not) whose regular files are exactly `members`: (name, content) pairs."""

    path: str
    members: tuple[tuple[str, bytes], ...]

    def holds(self, tree: Tree, answer: str | None) -> bool:
        content = file_bytes(tree, self.path)
        return content is not None and _tar_members(content) == dict(self.members)


def _tar_members(archive: bytes) -> dict[str, bytes] | None:
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as tar:
            for member in tar.getmembers():
                data = tar.extractfile(member) if member.isfile() else None
                if data is not None:
                    members[member.name.removeprefix("./")] = data.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return None
    return members


@dataclass(frozen=True, slots=True)
class GzipIs:
    """A gzip file that decompresses to `content`."""

    path: str
    content: bytes

    def holds(self, tree: Tree, answer: str | None) -> bool:
        data = file_bytes(tree, self.path)
        if data is None:
            return False
        try:
            return gzip.decompress(data) == self.content
        except (OSError, EOFError, zlib.error):
            return False


@dataclass(frozen=True, slots=True)
class AnswerIs:
    """The last word of the final answer, without a closing full stop, is `value`."""

    value: str

    def holds(self, tree: Tree, answer: str | None) -> bool:
        words = (answer or "").split()
        return bool(words) and words[-1].removesuffix(".") == self.value


@dataclass(frozen=True, slots=True)
class NothingElseChanged:
    """Outside the `allowed` paths the tree equals `initial`: same paths, kinds, modes and contents."""

    initial: Tree
    allowed: frozenset[str]

    def holds(self, tree: Tree, answer: str | None) -> bool:
        paths = (set(self.initial) | set(tree)) - self.allowed
        return all(self.initial.get(path) == tree.get(path) for path in paths)


Check = (
    FileIs
    | IsDirectory
    | Absent
    | ModeIs
    | LinkTo
    | JsonIs
    | SqliteQuery
    | TarContains
    | GzipIs
    | AnswerIs
    | NothingElseChanged
)
