"""`obsspec evaluate` as a user runs it: a process, real sandboxes, a token endpoint by URL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_compare import endpoint, lines

pytestmark = pytest.mark.sandbox


def evaluate(url: str, folder: Path, *more: str) -> dict[str, float]:
    options = ("--policy", url, "--policy-name", "scripted", "--sandbox", "local", "--max-turn-tokens", "32")
    places = ("--rollouts", str(folder), "--json", str(folder.with_suffix(".json")))
    command = [sys.executable, "-m", "obsspec.cli", "evaluate", *options, *places, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(folder.with_suffix(".json").read_text())


def test_two_world_models_are_asked_about_the_same_rollouts(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    with endpoint() as url:
        one = evaluate(url, folder, "--tasks", "1")
        made = lines(folder)
        other = evaluate(url, folder, "--tasks", "2", "--world-model", url, "--world-model-name", "scripted")
    assert len(made) == one["tasks"] == 1
    assert len(lines(folder)) == other["tasks"] == 2
    assert lines(folder)[:1] == made
    assert other["predictions"] == 2 * one["predictions"] == 4
