"""What happens to a run folder that was damaged, shared, or filled a disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from obsspec.rollout.store import RunFolder
from obsspec.values import ConfigError
from tests.compare.conftest import rollouts

CONFIG = {"depth": 1}
OPEN = "import sys, pathlib, time; from obsspec.rollout.store import RunFolder\n"
HOLD = f"{OPEN}folder = RunFolder(pathlib.Path(sys.argv[1]), {CONFIG!r}); print('held', flush=True); time.sleep(60)"


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\0\0\0", b'"x"', b"{}", b"\xff", b'{"arm": "sequential"}', b""])
def test_a_damaged_line_is_named_and_the_others_are_kept(tmp_path: Path, damage: bytes) -> None:
    folder = RunFolder(tmp_path, CONFIG)
    first, second = rollouts(None, 2)
    folder.append("sequential", first)
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(file.read_bytes() + damage + b"\n")
    folder.append("sequential", second)
    with pytest.raises(ConfigError, match=r"line 2 of .*: delete that line"):
        list(RunFolder(tmp_path, CONFIG).results())
    whole = [line for line in file.read_bytes().splitlines(keepends=True) if line != damage + b"\n"]
    file.write_bytes(b"".join(whole))
    assert len(list(RunFolder(tmp_path, CONFIG).results())) == 2


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", "3"])
def test_a_damaged_configuration_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="is damaged"):
        RunFolder(tmp_path, CONFIG)


def test_two_processes_can_not_write_to_one_folder(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="another process"):
            RunFolder(tmp_path, CONFIG)
        other.kill()
        other.wait()
    RunFolder(tmp_path, CONFIG)  # a killed process holds nothing


def test_half_a_line_is_taken_back_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path, CONFIG)
    first, second = rollouts(None, 2)
    folder.append("sequential", first)
    write, left = os.write, [100]

    def full(descriptor: int, data: bytes) -> int:
        if not left:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: left.pop()])

    monkeypatch.setattr("os.write", full)
    with pytest.raises(ConfigError, match="No space left"):
        folder.append("sequential", second)
    monkeypatch.undo()
    folder.append("sequential", second)  # by the same process, as soon as there is room
    assert [result.task_id for _, result in folder.results()] == ["task-0", "task-1"]


def test_a_summary_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, CONFIG)
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(ConfigError, match="can not write"):
        folder.write_json("summary.json", {"a": 1})
    assert json.loads(folder.write_json("other.json", {"a": float("nan")}).read_text()) == {"a": None}
