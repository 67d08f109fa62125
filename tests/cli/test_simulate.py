"""`obsspec simulate` as a user runs it, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from obsspec.cli.simulate import app
from obsspec.rollout.store import RunFolder
from obsspec.testing.world_model import Move
from obsspec.values import ConfigError
from tests.compare.conftest import rollouts


def run(*arguments: object) -> Any:
    return app([str(each) for each in arguments], result_action="return_value")


def test_paper_shows_ours_beside_the_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "paper.json"
    assert run("paper", "--tables", "tir", "--batches", 1, "--json", figures) == 0
    said = capsys.readouterr().out
    assert "obsspec-0.6B" in said
    assert "fitted: spread of turn lengths" in said
    results = json.loads(figures.read_text())["results"]
    assert {result["table"] for result in results} == {"tir"}


def test_regime_writes_map_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--tool-s", 1.7, "--tokens", 40, "--match", 0.9, "--load", 4, "--coarse")
    assert run("regime", *options, "--out", tmp_path) == 0
    table = pq.read_table(tmp_path / "regime.parquet")
    assert table.column("arm").to_pylist() == ["observation", "cascade", "guarded"]
    assert all(0 < reduction < 1 for reduction in table.column("reduction").to_pylist())
    assert (tmp_path / "regime.png").stat().st_size > 10_000
    assert "cascade" in capsys.readouterr().out


def test_plan_shows_what_to_expect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run", {"concurrency": 1})
    for result in (*rollouts(None, 2), *rollouts(Move.RIGHT, 2)):
        folder.append("speculative" if result.speculation else "sequential", result)
    figures = tmp_path / "plan.json"
    run("plan", folder.path, "--depth", 1, "--depth", 2, "--rollouts", 4, "--no-guarded", "--json", figures)
    said = capsys.readouterr().out
    assert "scripted-right" in said
    assert "(sequential)" in said
    assert [line["depth"] for line in json.loads(figures.read_text())["lines"]] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("paper", "--tables", "depth,width"), "--tables: unknown width; known: main"),
        (("paper", "--batches", "0"), "--batches and --asynchronous must be at least 1"),
        (("regime", "--arms", "magic"), "--arms: unknown magic; known: observation, cascade, guarded"),
        (("regime", "--match", "1.5"), "a match of at most 0.99"),
        (("regime", "--load", "0"), "values of load"),
        (("reference", "--match", "0"), "a match above 0"),
        (("plan", "/nowhere/at/all"), "no run folder"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        run(*arguments)
    assert "\n" not in str(error.value)
