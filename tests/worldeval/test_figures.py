"""Figures against cases small enough to count by hand, through the file that they are computed from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from obsspec.values import ConfigError
from obsspec.worldeval.baselines import NO_OUTPUT
from obsspec.worldeval.bench import CASCADE
from obsspec.worldeval.figures import load, summarize
from obsspec.worldeval.picture import draw
from obsspec.worldeval.store import Row, open_rows, read_rows
from obsspec.worldeval.table import tables

NAN = pytest.approx(float("nan"), nan_ok=True)


def made(call: int, source: str = CASCADE, **more: Any) -> Row:
    fields = {
        "data": "some",
        "protocol": "epochs",
        "kind": "terminal",
        "model": "m",
        "task": f"t{call % 2}",
        "traj": "r",
        "step": call,
        "test": True,
        "tool": "bash",
        "program": "ls",
        "candidates": 1,
        "rank": 0,
        "said_by": "rules",
        "confidence": 0.5,
        "latency_s": 0.001,
        "total_s": 0.002,
        "failed": False,
        "error": "",
        "trivial": False,
        "tool_s": None,
        "replay_s": None,
        "replay_equal": None,
        "repeat_equal": None,
        "command": "ls",
        "expected": "x",
        "predicted": "",
    }
    return Row(call=call, source=source, **{**fields, **more})


def summary(path: Path, rows: Iterable[Row], tool_seconds: float | None = None) -> dict[str, Any]:
    with open_rows(path / "rows.parquet") as out:
        for each in rows:
            out.add(each)
    return summarize(load(path / "rows.parquet"), tool_seconds)


FOUR = [  # right and empty, wrong, silent, right
    {"trivial": True, "confidence": 0.8, "latency_s": 0.001, "said_by": "rules"},
    {"rank": -1, "confidence": 0.4, "latency_s": 0.003, "said_by": "memory", "program": "cat"},
    {"rank": -1, "candidates": 0, "confidence": None, "latency_s": 0.002, "said_by": ""},
    {"confidence": 0.6, "latency_s": 0.002, "said_by": "memory"},
]


def four(**more: Any) -> list[Row]:
    baseline = [made(n, NO_OUTPUT, rank=0 if n == 0 else -1, program=FOUR[n].get("program", "ls")) for n in range(4)]
    return [*(made(n, **{**each, **more}) for n, each in enumerate(FOUR)), *baseline]


def test_shares_precision_and_latency(tmp_path: Path) -> None:
    found = summary(tmp_path, four())["some"]
    cascade = found["protocols"]["epochs"]["sources"][CASCADE]
    assert (found["calls"], found["tasks"], found["nonempty"]) == (4, 2, 0.75)
    assert (cascade["spoke"], cascade["exact"], cascade["precision"]) == (0.75, 0.5, pytest.approx(2 / 3))
    assert cascade["exact_nonempty"] == pytest.approx(1 / 3)
    assert cascade["precision_nonempty"] == 0.5
    assert cascade["confidence"] == pytest.approx(0.6)
    assert cascade["latency_p50_s"] == pytest.approx(0.002)
    assert cascade["hideable"] == 0.5
    assert found["weighed_by"] == "1.69 s a call"


def test_any_of_the_candidates(tmp_path: Path) -> None:
    rows = [made(0, rank=1, candidates=2), made(1), made(0, NO_OUTPUT), made(1, NO_OUTPUT)]
    cascade = summary(tmp_path, rows)["some"]["protocols"]["epochs"]["sources"][CASCADE]
    assert (cascade["exact"], cascade["top"]) == (0.5, 1.0)


def test_by_command_and_by_whose_candidate_it_was(tmp_path: Path) -> None:
    protocol = summary(tmp_path, four())["some"]["protocols"]["epochs"]
    assert list(protocol["commands"]) == ["ls", "cat"]
    assert (protocol["commands"]["ls"]["exact"], protocol["commands"]["cat"]["exact"]) == (pytest.approx(2 / 3), 0)
    assert protocol["commands"]["ls"]["no_output"] == pytest.approx(1 / 3)
    assert protocol["said_by"]["memory"] == {"share": 0.5, "precision": 0.5, "exact": 0.25, "confidence": 0.5}
    assert protocol["said_by"]["rules"]["precision"] == 1


def test_tool_time_is_what_tools_took_else_the_replay_else_a_constant(tmp_path: Path) -> None:
    def hideable(tool_seconds: float | None = None, **seconds: list[float | None]) -> tuple[float, str]:
        rows = [
            made(n, source, **FOUR[n], **{name: values[n] for name, values in seconds.items()})
            for n in range(4)
            for source in (CASCADE, NO_OUTPUT)
        ]
        found = summary(tmp_path, rows, tool_seconds)["some"]
        return found["protocols"]["epochs"]["sources"][CASCADE]["hideable"], found["weighed_by"]

    assert hideable(tool_s=[1.0, 2.0, 3.0, 4.0])[0] == pytest.approx(0.5)
    assert hideable(tool_s=[7.0, 1.0, 1.0, 1.0], replay_s=[0.0, 1.0, 0.0, 0.0], tool_seconds=9.0) == (
        pytest.approx(0.8),
        "seconds that the tools took",
    )
    assert hideable(replay_s=[3.0, 1.0, None, None]) == (
        pytest.approx(0.75),
        "seconds of the replay, where there was one",
    )
    assert hideable(replay_s=[3.0, 1.0, None, None], tool_seconds=2.0) == (0.5, "2 s a call")


def test_ceilings_count_only_where_they_are_known(tmp_path: Path) -> None:
    rows = [
        made(n, source, replay_equal=replay, repeat_equal=repeat)
        for n, (replay, repeat) in enumerate([(True, None), (False, None), (None, True), (True, None)])
        for source in (CASCADE, NO_OUTPUT)
    ]
    found = summary(tmp_path, rows)["some"]
    assert (found["ceiling_replay"], found["replayed"]) == (pytest.approx(2 / 3), 3)
    assert (found["protocols"]["epochs"]["ceiling_repeat"], found["repeated"]) == (1.0, 1)


def test_tasks_that_are_only_learnt_from_do_not_count(tmp_path: Path) -> None:
    rows = [made(n, source, test=n == 0) for n in range(4) for source in (CASCADE, NO_OUTPUT)]
    assert summary(tmp_path, rows)["some"]["calls"] == 1


def test_the_interval_is_over_tasks(tmp_path: Path) -> None:
    """All calls of a task alike: as many samples as tasks, however many calls."""

    def width(tasks: int, each: int) -> float:
        rows = [
            made(n, source, task=f"t{n % tasks}", rank=0 if n % tasks % 2 else -1)
            for n in range(tasks * each)
            for source in (CASCADE, NO_OUTPUT)
        ]
        low, high = summary(tmp_path, rows)["some"]["protocols"]["epochs"]["sources"][CASCADE]["exact_ci"]
        assert low <= 0.5 <= high
        return high - low

    assert width(10, 10) == pytest.approx(width(10, 1))
    assert width(40, 1) < 0.75 * width(10, 1)
    assert width(10, 1) == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 10), abs=0.1)
    one = summary(tmp_path, [made(0, task="t"), made(0, NO_OUTPUT, task="t")])["some"]["protocols"]["epochs"]
    assert one["sources"][CASCADE]["exact_ci"] == (NAN, NAN)


def test_the_first_error_of_a_source_is_told(tmp_path: Path) -> None:
    rows = [*four(), made(0, "bad", failed=True, error="KeyError: 1"), made(1, "bad", failed=True, error="other")]
    found = summary(tmp_path, rows)
    assert found["some"]["errors"] == {"bad": "KeyError: 1"}
    console = Console(width=120, record=True, quiet=True)
    console.print(tables(found))


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [made(0, tool_s=1.5, replay_equal=True, command="cat \N{SNOWMAN}"), made(1, confidence=None)]
    with open_rows(tmp_path / "a" / "rows.parquet") as out:
        for each in rows:
            out.add(each)
    assert read_rows(tmp_path / "a" / "rows.parquet").to_pylist() == [asdict(each) for each in rows]


def test_rows_so_far_are_kept_whatever_happens(tmp_path: Path) -> None:
    def interrupted() -> None:
        with open_rows(tmp_path / "rows.parquet") as out:
            out.add(made(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(load(tmp_path / "rows.parquet")) == 1


def test_no_rows_are_no_figures(tmp_path: Path) -> None:
    assert summary(tmp_path, []) == {}


def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="can not write"), open_rows(tmp_path / "file" / "rows.parquet"):
        pass


def test_tables_and_picture_of_every_shape(tmp_path: Path) -> None:
    rows = [*four(candidates=2), *(made(n, NO_OUTPUT, data="no cascade $x$", rank=-1) for n in range(2))]
    found = summary(tmp_path, rows)
    console = Console(width=120, record=True, file=(tmp_path / "text").open("w"))
    console.print(tables(found))
    console.file.close()
    text = (tmp_path / "text").read_text()
    assert "66.7 %" in text
    assert "top-K" in text
    assert "no cascade $x$: 2 calls" in text
    draw(load(tmp_path / "rows.parquet"), found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
