"""`obsspec world eval` as a user runs it, in this process."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from obsspec.cli.world import app
from obsspec.values import ConfigError
from obsspec.worldeval.store import read_rows

CALLS = [("a", "a1", 0), ("a", "a1", 1), ("b", "b1", 0), ("a", "a2", 0), ("b", "b2", 0)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {"task": task, "traj": traj, "step": step, "tool": "bash", "args": f"echo {step}", "out": f"{step}\n"}
        for task, traj, step in CALLS
    ]
    path = tmp_path / "some.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def run(*arguments: object) -> Any:
    return app([str(each) for each in arguments], result_action="return_value")


def test_writes_rows_summary_and_picture(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    sources = "obsspec.worldeval.baselines:Repeat,tests.worldeval.conftest:Breaks"
    options = ("--sources", sources, "--min-confidence", 0.15, "--ablate", "--breadth", 2)
    assert run("eval", data, *options, "--out", out, "--json", figures) == 0
    said = capsys.readouterr().out
    assert "some: 5 calls of 2 tasks" in said
    assert "Breaks failed: KeyError: 'broken on purpose'" in said
    summary = json.loads(figures.read_text())
    assert summary == json.loads((out / "summary.json").read_text())
    protocols = summary["some"]["protocols"]
    assert list(protocols) == ["cold", "group", "epochs"]
    assert protocols["cold"]["sources"]["Repeat"]["exact"] == 0
    assert protocols["group"]["sources"]["Repeat"]["exact"] == 0.4
    assert protocols["epochs"]["sources"]["cascade"]["exact"] == 0.4
    assert protocols["epochs"]["sources"]["cascade"]["precision"] == 1
    assert protocols["epochs"]["sources"]["cascade -Repeat"]["exact"] == 0
    assert (out / "picture.png").stat().st_size > 10_000


@pytest.mark.parametrize("source", ["Interrupts", "Terminates"])
def test_ctrl_c_keeps_what_is_done(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str) -> None:
    out = tmp_path / "out"
    sources = f"tests.worldeval.conftest:{source}"
    assert run("eval", data, "--sources", sources, "--protocols", "epochs", "--out", out) == 130
    assert "interrupted" in capsys.readouterr().out
    assert set(read_rows(out / "rows.parquet")["call"].to_pylist()) == {0, 1}


def test_a_background_job_that_is_ended_keeps_what_is_done(data: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts its background jobs
    try:
        sources = "tests.worldeval.conftest:Terminates"
        assert run("eval", data, "--sources", sources, "--protocols", "epochs", "--out", tmp_path / "out") == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(read_rows(tmp_path / "out" / "rows.parquet")["call"].to_pylist()) == {0, 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sources", "nonsense"), "unknown 'nonsense'; known: "),
        (("--sources", "no.such:Thing"), "no module no"),
        (("--sources", "obsspec.values:Thing"), "obsspec.values has no Thing; correct"),
        (("--sources", "builtins:dict"), "dict is no world model"),
        (("--protocols", "warm"), "unknown warm; known: cold, group, epochs"),
        (("--protocols", ","), "unknown nothing"),
        (("--breadth", "0"), "--breadth must be at least 1"),
        (("--test-share", "0"), "--test-share must be above 0"),
        (("--timeout", "0"), "--timeout must be above 0"),
        (("--min-confidence", "2"), "--min-confidence must be between"),
        (("--limit", "-1"), "--limit must not be negative"),
        (("--image-pattern", "("), "no regular expression"),
    ],
)
def test_what_is_wrong_is_one_line(data: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        run("eval", data, "--out", tmp_path / "out", *arguments)
    assert "\n" not in str(caught.value)


def test_the_report_can_be_made_again_from_the_rows(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("eval", data, "--sources", "obsspec.worldeval.baselines:Repeat", "--out", out)
    before = (out / "summary.json").read_text()
    for name in ("summary.json", "picture.png"):
        (out / name).unlink()
    run("report", out)
    assert (out / "summary.json").read_text() == before
    assert (out / "picture.png").exists()
    with pytest.raises(ConfigError, match=r"holds no rows\.parquet"):
        run("report", tmp_path)


@pytest.mark.sandbox
def test_probe_says_what_is_the_same_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = tmp_path / "figures.json"
    run("probe", "files-easy-9", "--json", figures)
    assert json.loads(figures.read_text())["files-easy-9"]["ceiling"] == 1
    assert "100.0 %" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--times must be at least 2"):
        run("probe", "files-easy-9", "--times", 1)
    with pytest.raises(ConfigError, match="no determinism profile"):
        run("probe", "files-easy-9", "--determinism", "some")
