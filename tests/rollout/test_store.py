"""A run folder loses no finished rollout, and only resumes the run it holds."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from obsspec.rollout.equality import differences
from obsspec.rollout.records import from_record, to_record
from obsspec.rollout.store import RunFolder
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.world_model import Move
from obsspec.values import ConfigError
from tests.compare.conftest import rollouts

CONFIG: dict[str, Any] = {"depth": 1, "mode": "exact"}


def test_a_record_holds_everything() -> None:
    for result in (*rollouts(None, 1), *rollouts(Move.WRONG, 1)):
        record = json.loads(json.dumps(to_record(result)))
        back = from_record(record)
        assert differences(result, back) == []
        assert back.speculation == result.speculation
        assert [t.tool_s for t in back.trajectory.turns] == [t.tool_s for t in result.trajectory.turns]
        assert record["messages"][0] == {"role": "user", "content": "hello"}
        assert len(record["ids"]) == len(record["mask"]) == len(record["logprobs"])


def test_a_record_from_before_there_were_guarded_calls_is_read() -> None:
    (result,) = rollouts(Move.RIGHT, 1, SpeculationSettings(depth=2, guarded=True))
    assert result.speculation is not None
    assert result.speculation.guarded_ran == 2
    record = json.loads(json.dumps(to_record(result)))
    assert from_record(record).speculation == result.speculation
    for name in ("guarded_sent", "guarded_ran", "guarded_refused"):
        del record["speculation"][name]
    older = from_record(record).speculation
    assert older is not None
    assert older.guarded_sent == older.guarded_ran == older.guarded_refused == 0


def test_a_killed_write_loses_only_the_line_in_hand(tmp_path: Path) -> None:
    first, second = rollouts(None, 2)
    folder = RunFolder(tmp_path, CONFIG)
    folder.append("sequential", first)
    folder.append("sequential", second)
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    again = RunFolder(tmp_path, CONFIG)
    assert [result.task_id for _, result in again.results()] == ["task-0"]
    again.append("sequential", second)
    assert [result.task_id for _, result in again.results()] == ["task-0", "task-1"]


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    RunFolder(tmp_path, CONFIG)
    with pytest.raises(ConfigError, match=r"depth=1, now depth=2.*--out"):
        RunFolder(tmp_path, {**CONFIG, "depth": 2})


def test_a_full_disk_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = rollouts(None, 2)
    folder = RunFolder(tmp_path, CONFIG)
    folder.append("sequential", first)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device; finished rollouts are kept"):
        folder.append("sequential", second)
    monkeypatch.undo()
    assert [result.task_id for _, result in RunFolder(tmp_path, CONFIG).results()] == ["task-0"]


def test_what_need_not_agree_is_written_down_and_may_change(tmp_path: Path) -> None:
    free = ("threads",)
    RunFolder(tmp_path, {**CONFIG, "threads": 1}, free)
    assert RunFolder(tmp_path, {**CONFIG, "threads": 2}, free).read_json("config.json")["threads"] == 1
    RunFolder(tmp_path, CONFIG, free)
    with pytest.raises(ConfigError, match=r"depth=1, now depth=2"):
        RunFolder(tmp_path, {**CONFIG, "depth": 2}, free)


def test_arms_that_nobody_wants_are_not_even_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, CONFIG)
    for arm, result in zip(("step-9", 'step-"10'), rollouts(None, 2), strict=True):
        folder.append(arm, result)
    assert [arm for arm, _ in folder.results(lambda arm: "10" in arm)] == ['step-"10']
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"task_id"', b'"tusk_id"', 1))
    assert [arm for arm, _ in folder.results(lambda arm: "10" in arm)] == ['step-"10']
    with pytest.raises(ConfigError, match="line 1"):
        list(folder.results())


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can not use the run folder"):
        RunFolder(tmp_path / "file" / "run", CONFIG)
