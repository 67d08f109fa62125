"""Each check holds on what it describes and fails on near misses."""

from __future__ import annotations

import gzip

import pytest

from obsspec.sandbox.spec import Entry, EntryKind, FileSpec, Tree
from obsspec.tasks.checks import (
    Absent,
    AnswerIs,
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
from obsspec.tasks.families.archives import tar_bytes
from obsspec.tasks.families.sqlite import database


def file(content: bytes, mode: int = 0o644) -> Entry:
    return Entry(EntryKind.FILE, mode, content)


FOLDER = Entry(EntryKind.DIRECTORY, 0o755)


def test_file_is_wants_the_exact_bytes_of_a_regular_file() -> None:
    check = FileIs("a", b"x\n")
    assert check.holds({"a": file(b"x\n")}, None)
    assert not check.holds({"a": file(b"x")}, None)
    assert not check.holds({"a": Entry(EntryKind.LINK, 0o777, b"x\n")}, None)
    assert not check.holds({}, None)


def test_absent_and_directory() -> None:
    assert Absent("a").holds({}, None)
    assert not Absent("a").holds({"a": FOLDER}, None)
    assert IsDirectory("a").holds({"a": FOLDER}, None)
    assert not IsDirectory("a").holds({"a": file(b"")}, None)


def test_mode_and_link() -> None:
    assert ModeIs("a", 0o600).holds({"a": file(b"", 0o600)}, None)
    assert not ModeIs("a", 0o600).holds({"a": file(b"")}, None)
    assert LinkTo("l", "a").holds({"l": Entry(EntryKind.LINK, 0o777, b"a")}, None)
    assert not LinkTo("l", "a").holds({"l": Entry(EntryKind.LINK, 0o777, b"./b")}, None)
    assert not LinkTo("l", "a").holds({"l": file(b"a")}, None)


@pytest.mark.parametrize("written", [b'{"b": 2, "a": "x"}', b'{\n "a": "x",\n "b": 2\n}'])
def test_json_is_ignores_layout(written: bytes) -> None:
    assert JsonIs("j", '{"a": "x", "b": 2}').holds({"j": file(written)}, None)


@pytest.mark.parametrize(
    "written", [b'{"a": "x", "b": "2"}', b'{"a": "x", "b": 2', b"\xff", b'{"a": "x", "b": 2.0}', b""]
)
def test_json_is_sees_types_and_broken_text(written: bytes) -> None:
    assert not JsonIs("j", '{"a": "x", "b": 2}').holds({"j": file(written)}, None)


def test_sqlite_query_compares_rows_and_survives_garbage() -> None:
    check = SqliteQuery("d", "select name, qty from t order by rowid", (("a", 1), ("b", 2)))
    assert check.holds({"d": file(database("t", [("a", 1), ("b", 2)]))}, None)
    assert not check.holds({"d": file(database("t", [("b", 2), ("a", 1)]))}, None)
    assert not check.holds({"d": file(database("u", [("a", 1), ("b", 2)]))}, None)
    assert not check.holds({"d": file(b"not a database, but long enough to be read as one" * 20)}, None)
    assert not check.holds({"d": file(b"")}, None)


@pytest.mark.parametrize("compressed", [False, True])
def test_tar_contains_exactly_these_members(compressed: bool) -> None:
    members = (FileSpec("a.txt", b"1\n"), FileSpec("b.txt", b"2\n"))
    check = TarContains("t", (("a.txt", b"1\n"), ("b.txt", b"2\n")))
    whole = tar_bytes(members, compressed=compressed)
    assert check.holds({"t": file(whole)}, None)
    assert not check.holds({"t": file(tar_bytes(members[:1], compressed=compressed))}, None)
    assert not check.holds({"t": file(whole[:40])}, None)
    assert not check.holds({"t": file(b"")}, None)


def test_gzip_is_reads_the_content() -> None:
    check = GzipIs("z", b"x\n")
    assert check.holds({"z": file(gzip.compress(b"x\n", mtime=5))}, None)
    assert not check.holds({"z": file(gzip.compress(b"y\n"))}, None)
    assert not check.holds({"z": file(gzip.compress(b"x\n")[:-3])}, None)
    assert not check.holds({"z": file(b"x\n")}, None)


@pytest.mark.parametrize("answer", ["42", " 42\n", "42.", "The answer is 42.", "it is 42"])
def test_answer_is_reads_the_last_word(answer: str) -> None:
    assert AnswerIs("42").holds({}, answer)


@pytest.mark.parametrize("answer", [None, "", "  ", "142", "42 apples", "4 2", "-42"])
def test_answer_is_refuses_anything_else(answer: str | None) -> None:
    assert not AnswerIs("42").holds({}, answer)


def test_nothing_else_changed_sees_every_kind_of_change() -> None:
    initial: Tree = {"a": file(b"1"), "d": FOLDER, "out": file(b"")}
    check = NothingElseChanged(initial, frozenset({"out", "new"}))
    assert check.holds(initial, None)
    assert check.holds({"a": file(b"1"), "d": FOLDER, "new": file(b"n")}, None)
    assert not check.holds({**initial, "stray": file(b"")}, None)
    assert not check.holds({**initial, "a": file(b"2")}, None)
    assert not check.holds({**initial, "a": file(b"1", 0o600)}, None)
    assert not check.holds({"d": FOLDER, "out": file(b"")}, None)
