"""The end of a run: whatever can not be written, the figures are shown and what was written stays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from obsspec.cli.compare import _report
from obsspec.compare.summary import Pair
from obsspec.rollout.collector import Verdict
from obsspec.rollout.store import RunFolder
from obsspec.testing.world_model import Move
from obsspec.values import ConfigError
from tests.compare.conftest import rollouts


def report(out: Path, target: Path | None = None) -> tuple[str, ConfigError | None]:
    folder = RunFolder(out, {})
    folder.claim("identity.json", {"exact": True})
    pair = Pair(rollouts(None, 1)[0], rollouts(Move.RIGHT, 1)[0])
    console = Console(width=500)
    failed = None
    with console.capture() as capture:
        try:
            _report([pair], folder, console, target)
        except ConfigError as error:
            failed = error
    return capture.get(), failed


def test_a_path_is_no_markup(tmp_path: Path) -> None:
    out = tmp_path / "r[" / "x]" / "[bold]y"
    text, error = report(out)
    assert error is None
    assert str(out) in text


@pytest.mark.parametrize("missing", ["compare.png", "figures.json"])
def test_a_file_that_can_not_be_written_takes_nothing_along(tmp_path: Path, missing: str) -> None:
    (tmp_path / missing).mkdir()
    text, error = report(tmp_path, tmp_path / "figures.json")
    assert error is not None
    assert missing in str(error)
    assert "identical rollouts 1/1" in text
    assert json.loads((tmp_path / "summary.json").read_text())["pairs"] == 1


def test_a_difference_in_the_third_arm_alone_fails_the_run(tmp_path: Path) -> None:
    sequential, right = rollouts(None, 1)[0], rollouts(Move.RIGHT, 1)[0]
    other = replace(right, verdict=Verdict(0.0))
    for name, alone, status in (("good", right, 0), ("bad", other, 1)):
        folder = RunFolder(tmp_path / name, {})
        folder.claim("identity.json", {"exact": True})
        console = Console(width=200)
        with console.capture() as capture:
            assert _report([Pair(sequential, right, alone)], folder, console) == status
        assert f"observation only: identical rollouts {1 - status}/1" in capture.get()
