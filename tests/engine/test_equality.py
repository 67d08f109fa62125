"""Losslessness on the real parts: the shipped model in the exact mode, real sandboxes, temperature 1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.sandbox, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("concurrency", "depth", "breadth", "tasks"), [(1, 2, 1, 2), (4, 2, 2, 4)])
def test_rollouts_are_identical_on_the_real_engine(
    tmp_path: Path, concurrency: int, depth: int, breadth: int, tasks: int
) -> None:
    command = [sys.executable, "-m", "obsspec.cli", "compare", "--tasks", str(tasks), "--out", str(tmp_path)]
    command += ["--concurrency", str(concurrency), "--depth", str(depth), "--breadth", str(breadth)]
    command += ["--latency", "uniform:0.2,1.2", "--max-turns", "4", "--families", "files,text,config,csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["exact"]
    assert summary["identical"] == summary["pairs"] == tasks
    assert summary["turns_with_a_call"] >= tasks  # the model works in the terminal, else nothing was shown
    assert summary["attempts"] > 0
    assert set(summary["stops"]["speculative"]) <= {"final", "turn_limit", "cut"}
