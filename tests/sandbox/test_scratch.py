"""The directory of a process goes with it, and at the latest when the next process starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAKE = """
import os, signal, sys
from obsspec.sandbox.scratch import process_directory
print(process_directory(), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "waiting":
    sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return [sys.executable, "-c", MAKE]


def directories(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir() if not path.name.endswith(".lock")}


def test_it_is_removed_at_the_end(start: list[str], tmp_path: Path) -> None:
    assert subprocess.run([*start, "ended"], capture_output=True, check=True).stdout
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(
    start: list[str], tmp_path: Path
) -> None:
    living = subprocess.Popen([*start, "waiting"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with living:
        assert living.stdout is not None
        used = Path(living.stdout.readline().strip()).name
        subprocess.run([*start, "killed"], capture_output=True, check=False)
        assert len(directories(tmp_path)) == 2
        subprocess.run([*start, "ended"], capture_output=True, check=True)
        assert directories(tmp_path) == {used}
        living.communicate("")
    assert list(tmp_path.iterdir()) == []
