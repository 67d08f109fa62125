"""Mutations of a solved state: for each check of a task one change that must make it fail."""

from __future__ import annotations

import gzip
import io
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from obsspec.sandbox.spec import Entry, EntryKind, Tree
from obsspec.tasks.checks import (
    Absent,
    AnswerIs,
    Check,
    FileIs,
    GzipIs,
    IsDirectory,
    JsonIs,
    LinkTo,
    ModeIs,
    NothingElseChanged,
    SqliteQuery,
    TarContains,
)
from obsspec.tasks.task import Task

STRAY = "zz-stray.txt"


@dataclass(frozen=True, slots=True)
class Mutation:
    """A state in which `check`, and with it the task, must fail."""

    check: Check
    tree: Tree
    answer: str | None


def mutations(task: Task, tree: Tree, answer: str | None) -> Iterator[Mutation]:
    """Broken variants of a state that solves the task: each check in at least one way."""
    for check in task.checks:
        if isinstance(check, AnswerIs):
            yield Mutation(check, tree, f"{answer}0")
            yield Mutation(check, tree, None)
        elif isinstance(check, NothingElseChanged):
            for broken in _disturbed(check, tree):
                yield Mutation(check, broken, answer)
        else:
            yield Mutation(check, {**tree, check.path: _broken(check, tree.get(check.path))}, answer)
            if not isinstance(check, Absent):
                yield Mutation(check, {path: entry for path, entry in tree.items() if path != check.path}, answer)


def _disturbed(check: NothingElseChanged, tree: Tree) -> Iterator[Tree]:
    stray = Entry(EntryKind.FILE, 0o644, b"stray\n")
    yield {**tree, STRAY: stray}
    for path in check.initial.keys() - check.allowed:
        yield {**tree, path: replace(tree[path], mode=tree[path].mode ^ 0o100)}
        yield {other: entry for other, entry in tree.items() if other != path}


def _broken(check: Check, entry: Entry | None) -> Entry:
    """The entry at the path of the check, changed as little as breaks the check."""
    if entry is None:
        return Entry(EntryKind.FILE, 0o644, b"")
    match check:
        case ModeIs():
            return replace(entry, mode=entry.mode ^ 0o010)
        case IsDirectory():
            return Entry(EntryKind.FILE, entry.mode)
        case JsonIs():
            return replace(entry, content=b"[" + entry.content + b"]")
        case SqliteQuery():
            return replace(entry, content=_without_first_row(entry.content))
        case TarContains():
            return replace(entry, content=_one_member_short(entry.content))
        case GzipIs(content=content):
            return replace(entry, content=gzip.compress(content + b"\n", mtime=0))
        case FileIs() | LinkTo() | _:
            return replace(entry, content=entry.content + b"x")


def _without_first_row(database: bytes) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(database)
        (table,) = connection.execute("select name from sqlite_master where type = 'table'").fetchone()
        connection.execute(f"delete from {table} where rowid = (select min(rowid) from {table})")
        connection.commit()
        return connection.serialize()


def _one_member_short(archive: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in old.getmembers()[1:]:
            new.addfile(member, old.extractfile(member))
    return buffer.getvalue()
