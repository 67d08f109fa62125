"""Which world model is measured beside which policy, and what is said of their difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.training.commands import only
from benchmarks.training.cotraining import Models, arguments, known
from benchmarks.training.cotraining_report import unseen_share
from benchmarks.training.cotraining_rows import match_row


def world_versions(folder: Path, steps: list[int]) -> Models:
    """World versions, each with the last policy step whose turns it was trained on."""
    for number, step in enumerate(steps):
        place = folder / "world" / "versions" / f"{number:06d}"
        place.mkdir(parents=True)
        (place / "manifest.json").write_text(json.dumps({"number": number, "step": step}))
    return Models(folder / "policy", folder / "world")


def test_a_policy_is_measured_beside_the_newest_world_model_that_saw_none_of_its_own_turns(tmp_path: Path) -> None:
    models = world_versions(tmp_path, [0, 0, 1, 3, 3])
    assert [models.world_at(step) for step in range(6)] == [0, 1, 2, 2, 4, 4]


def figures(matched: dict[str, tuple[int, int]]) -> dict[str, Any]:
    shares = {task: {"predictions": calls, "match": right / calls} for task, (right, calls) in matched.items()}
    return {"match_per_task": shares, "reward": 0.5, "tasks": len(matched), "match_nonempty": 0.1, "match_trivial": 0.2}


def test_the_difference_of_two_world_models_is_paired_by_task() -> None:
    tasks = {f"task-{n}": (n, 10) for n in range(1, 9)}
    better = {task: (right + 1, calls) for task, (right, calls) in tasks.items()}
    row = match_row(figures(better), figures(tasks))
    assert row["calls"] == 80
    assert row["match"]["difference"] == pytest.approx([0.1, 0.1, 0.1])  # tasks differ much, the models always alike
    value, low, high = row["match"]["frozen"]
    assert value == pytest.approx(0.45)
    assert low < 0.35 < 0.55 < high


def test_families_that_the_world_model_began_with_are_counted_apart() -> None:
    frozen = figures({"files-easy-1": (4, 5), "files-easy-2": (4, 5), "sqlite-easy-1": (0, 5)})
    updated = figures({"files-easy-1": (4, 5), "files-easy-2": (3, 5), "sqlite-easy-1": (5, 5)})
    parts = match_row(updated, frozen, ["files", "text"])["families"]
    assert {name: part["calls"] for name, part in parts.items()} == {"known": 10, "new": 5}
    assert parts["known"]["match"]["difference"][0] == pytest.approx(-0.1)
    assert parts["new"]["match"]["difference"][0] == pytest.approx(1.0)


def test_a_world_model_that_knows_some_families_is_trained_on_their_sessions_only(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions.jsonl"
    tasks = ["files-easy-1", "sqlite-easy-1", "text-easy-3"]
    sessions.write_text("".join(json.dumps({"task_id": task}) + "\n" for task in tasks))
    kept = only(sessions, ["files", "text"]).read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in kept] == ["files-easy-1", "text-easy-3"]


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(SystemExit, match="sqllite"):
        known(arguments().parse_args(["out", "--policy", "run", "--known", "files,sqllite"]))


def test_other_rollouts_are_no_pairs() -> None:
    with pytest.raises(SystemExit, match="different rollouts"):
        match_row(figures({"a": (1, 2)}), figures({"b": (1, 2)}))


def test_unseen_turns_count_by_their_number() -> None:
    rows = [
        {"observations": 30, "updated": 0.5, "frozen": 0.4},
        {"observations": 10, "updated": 0.1, "frozen": 0.1},
    ]
    assert unseen_share(rows, "updated").value == pytest.approx(0.4)
    assert unseen_share(rows, "updated", "frozen").value == pytest.approx(0.075)
