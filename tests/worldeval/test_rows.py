"""Recorded rows: what is read, and that a bad row is named with its line, its field and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from obsspec.values import ConfigError
from obsspec.worldeval.data import open_data, paths
from obsspec.worldeval.recorded import contexts, image_of, label, to_call
from obsspec.worldeval.rows import RowsFile

from .conftest import WriteRows, row

GOOD = [
    row("t1", "a", 0, "cd /x", "", kind="terminal", model="m", replay_out="", replay_s=0.5),
    row("t1", "a", 1, "pwd", "/x\n"),
    row("t2", "b", 0, '{"id": 7}', "{}", tool="lookup"),
    row("t1", "a", 2, "ls", "f\n", model="m"),
]


@pytest.mark.parametrize("name", ["some.jsonl", "some.jsonl.gz"])
def test_rows_become_rollouts_in_recorded_order(write: WriteRows, name: str) -> None:
    rows = RowsFile(write([{**each, "model": "m"} for each in GOOD], name))
    assert rows.name == "some"
    assert [(entry.traj, entry.calls, entry.first) for entry in rows.rollouts] == [("a", 3, 0), ("b", 1, 3)]
    first = rows.read(rows.rollouts[0])
    assert [turn.call.command for turn in first] == ["cd /x", "pwd", "ls"]
    assert (first[0].replay_output, first[0].replay_s, first[0].tool_s) == ("", 0.5, None)
    assert [turn.observation.text for turn in first] == ["", "/x\n", "f\n"]
    assert rows.read(rows.rollouts[1])[0].call.arguments == {"id": 7}
    rows.close()


def test_a_context_holds_what_was_known_and_nothing_later(write: WriteRows) -> None:
    rows = RowsFile(write([{**each, "model": "m"} for each in GOOD]))
    found = [context for _, context in contexts(rows.read(rows.rollouts[0]), image_of("t"))]
    assert [len(context.history) for context in found] == [context.committed for context in found] == [0, 1, 2]
    assert found[2].history[1].observations[0].text == "/x\n"
    assert {context.image for context in found} == {"t"}
    rows.close()


@pytest.mark.parametrize(
    ("tool", "args", "arguments"),
    [
        ("bash", "ls", {"command": "ls"}),
        ("python", '{"a": 1}', {"code": '{"a": 1}'}),
        ("bash", '{"command": "ls"}', {"command": "ls"}),
        ("sql", "SELECT 1", {"query": "SELECT 1"}),
        ("think", "hm", {"input": "hm"}),
        ("get", '{"id": 1}', {"id": 1}),
        ("get", {"id": 1}, {"id": 1}),
        ("get", "{broken", {"input": "{broken"}),
    ],
)
def test_arguments(tool: str, args: str, arguments: dict[str, object]) -> None:
    assert to_call(tool, args).arguments == arguments


def test_calls_are_counted_under_program_verb_or_tool() -> None:
    calls = [to_call("bash", "ls -l"), to_call("sql", "select 1"), to_call("get", '{"id": 1}')]
    assert [label(call) for call in calls] == ["ls", "SELECT", "get"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"out": None}, r"line 2: 'out' is null; make it a text"),
        ({"step": "3"}, r"line 2: 'step' is a text; make it a whole number"),
        ({"step": True}, r"line 2: 'step' is true or false"),
        ({"args": 3}, r"line 2: 'args' is 3; make it a text or a JSON object"),
        ({"replay_s": "fast"}, r"line 2: 'replay_s' is a text; correct it or leave it out"),
        ({"traj": "a", "task": "t1", "step": 0}, r"line 2: step 0 of 'a' comes after step 0"),
    ],
)
def test_a_bad_row_is_named_with_its_fix(write: WriteRows, bad: dict[str, object], said: str) -> None:
    path = write([GOOD[0], {**row("t1", "a", 1, "ls", ""), "model": "m", **bad}])
    with pytest.raises(ConfigError, match=said):
        RowsFile(path)


def test_a_missing_field_and_what_is_no_json(write: WriteRows, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1: no field 'task'; add it, a text"):
        RowsFile(write([{"traj": "a"}]))
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"[1]\n")
    with pytest.raises(ConfigError, match="line 1: no JSON object"):
        RowsFile(broken)
    broken.write_bytes(b'{"task": \n')
    with pytest.raises(ConfigError, match="line 1: no JSON"):
        RowsFile(broken)
    broken.write_bytes(b"\n")
    with pytest.raises(ConfigError, match="holds no row"):
        RowsFile(broken)


def test_a_cut_off_gzip_file_is_said_to_be_one(write: WriteRows) -> None:
    path = write(GOOD * 50, "some.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="no whole gzip file"):
        RowsFile(path)


def test_directories_and_patterns(write: WriteRows, tmp_path: Path) -> None:
    files = [write(GOOD[2:3], "a.jsonl"), write(GOOD[2:3], "b.jsonl.gz")]
    (tmp_path / "notes.txt").write_text("no rows")
    assert paths(str(tmp_path)) == paths(str(tmp_path / "*.jsonl*")) == files
    with pytest.raises(ConfigError, match="is not there"):
        paths(str(tmp_path / "c.jsonl"))
    with open_data([str(tmp_path)], "sequential") as data:
        assert [each.name for each in data] == ["a", "b"]
    with (
        pytest.raises(ConfigError, match="two data sets are called a"),
        open_data([str(files[0]), str(files[0])], "sequential"),
    ):
        pass


def test_an_image_is_what_the_pattern_finds() -> None:
    assert image_of("")("fs1-7") == "fs1-7"
    assert image_of(r"fs\d")("fs1-7") == "fs1"
    assert image_of(r"(\w+)-\d")("fs1-7") == "fs1"
    assert image_of("nothing")("fs1-7") == "fs1-7"
    with pytest.raises(ConfigError, match="--image-pattern"):
        image_of("(")
