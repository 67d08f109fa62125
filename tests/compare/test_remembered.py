"""The memory of a comparison holds what finished rollouts taught, whatever its file held before."""

from __future__ import annotations

import sqlite3
from io import StringIO
from pathlib import Path

import anyio
import pytest
from rich.console import Console

from obsspec.compare.remembered import SPLIT, open_memory, teach
from obsspec.rollout.collector import RolloutResult
from obsspec.testing.world_model import Move
from obsspec.values import ConfigError, Context, Prediction, ToolCall
from obsspec.world.memory import Memory, Store
from tests.compare.conftest import rollouts


@pytest.fixture(scope="module")
def results() -> list[RolloutResult]:
    return rollouts(Move.RIGHT)


def said(store: Store, task: str) -> list[str]:
    """What the memory answers to the first call of the scripted rollouts, for a task."""
    found: list[Prediction] = []
    context = Context((), (), (ToolCall("bash", {"command": "mkdir d"}),), task_id=task, image=task)
    anyio.run(Memory(store, split=SPLIT, floor=0.8).predict, context, 1, found.append)
    return [prediction.observations[0].text for prediction in found]


def test_finished_rollouts_are_remembered_and_killed_ones_are_not(tmp_path: Path, results: list[RolloutResult]) -> None:
    console, path = Console(file=StringIO()), tmp_path / "memory.sqlite"
    first, killed, _ = results
    with open_memory(path, console) as store:
        teach(store, [first, killed])
    with open_memory(path, console) as store:
        teach(store, [first])
        assert said(store, first.task_id) == [first.trajectory.turns[0].observations[0].text]
        assert said(store, killed.task_id) == []


@pytest.mark.parametrize("content", [b"no database", b""])
def test_what_the_file_held_harms_nobody(tmp_path: Path, content: bytes, results: list[RolloutResult]) -> None:
    path = tmp_path / "memory.sqlite"
    path.write_bytes(content)
    with open_memory(path, Console(file=StringIO())) as store:
        teach(store, results)
    with Store(path) as store:
        assert said(store, results[0].task_id)


def test_a_file_that_can_not_be_replaced_is_a_wrong_configuration(tmp_path: Path) -> None:
    (tmp_path / "memory.sqlite").mkdir()
    with (
        pytest.raises(ConfigError, match=r"memory\.sqlite"),
        open_memory(tmp_path / "memory.sqlite", Console(file=StringIO())),
    ):
        pass


def test_a_memory_that_can_not_be_written_ends_no_comparison(
    tmp_path: Path, results: list[RolloutResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = StringIO()
    with open_memory(tmp_path / "memory.sqlite", Console(file=printed)) as store:
        monkeypatch.setattr(store, "flush", _full)
        teach(store, results)
    assert "incomplete" in printed.getvalue()


def _full() -> None:
    raise sqlite3.OperationalError("database or disk is full")
