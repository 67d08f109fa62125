"""The figures of a comparison, checked against what can be worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from obsspec.compare.distribution import p_values, same_distribution
from obsspec.compare.judgement import judge
from obsspec.compare.picture import draw
from obsspec.compare.statistics import mean_estimate, reduction_estimate
from obsspec.compare.summary import Pair, summarize
from obsspec.compare.table import tables
from obsspec.rollout.collector import Verdict
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.world_model import Move
from obsspec.values import StopReason

from .conftest import TOOL_S, TURNS, rollouts


def test_hidden_time_is_the_generation_that_ran_behind_the_tool(pairs: list[Pair]) -> None:
    summary = summarize(pairs)
    behind = [0.1 * (len(turn) - 1) for turn in TURNS[1:]]
    saved = sum(min(TOOL_S - 0.25, g) for g in behind)
    assert summary["identical"] == summary["pairs"] == 3
    assert summary["hidden_tool_time"] == pytest.approx(saved / (3 * TOOL_S), rel=1e-6)
    assert summary["match"] == 1.0
    assert summary["attempts"] == 9
    assert summary["prediction_p50_s"] == pytest.approx(0.25)
    assert summary["realized_depth"] == 1
    assert summary["realized_breadth"] == 1
    assert summary["discarded_policy_tokens"] == 0


def test_wrong_predictions_cost_tokens_and_no_time(pairs: list[Pair]) -> None:
    wrong = [Pair(pair.sequential, b) for pair, b in zip(pairs, rollouts(Move.WRONG), strict=True)]
    summary = summarize(wrong)
    assert summary["identical"] == 3
    assert summary["rollback"] == 1.0
    assert summary["match_nonempty"] == 0.0
    assert summary["discarded_policy_tokens"] > 0
    assert summary["reduction"] == pytest.approx(0.0, abs=1e-9)


def test_guarded_calls_are_counted_shown_and_drawn(pairs: list[Pair], tmp_path: Path) -> None:
    ahead = rollouts(Move.RIGHT, settings=SpeculationSettings(depth=2, guarded=True))
    guarded = [Pair(pair.sequential, b) for pair, b in zip(pairs, ahead, strict=True)]
    summary = summarize(guarded)
    assert summary["identical"] == 3
    assert (summary["guarded_sent"], summary["guarded_ran"], summary["guarded_refused"]) == (6, 6, 0)
    console = Console(record=True, width=160)
    console.print(tables(summary))
    assert "6 / 0 of 6" in console.export_text()
    console.print(tables(summarize(pairs)))
    assert "sent ahead" not in console.export_text()
    draw(guarded, summary, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_shares_and_counts_add_up(pairs: list[Pair]) -> None:
    summary = summarize(pairs)
    assert summary["match"] + summary["rollback"] + summary["cancel"] == pytest.approx(1.0)
    assert summary["attempts"] + summary["gated"] + summary["failed"] == summary["turns_with_a_call"] == 9
    assert sum(shares["turns"] for shares in summary["per_command"].values()) == 9


def test_a_pair_that_differs_is_named(pairs: list[Pair]) -> None:
    broken = replace(pairs[0].speculative, verdict=Verdict(0.0))
    summary = summarize([Pair(pairs[0].sequential, broken), *pairs[1:]])
    assert summary["identical"] == 2
    assert summary["different_pairs"] == [{"task_id": "task-0", "seed": "task-0", "fields": ["reward"]}]


def test_intervals_hold_the_value_and_vanish_for_one_sample() -> None:
    estimate = reduction_estimate([10.0, 12.0, 9.0, 14.0], [8.0, 9.0, 8.0, 10.0])
    assert estimate.value == pytest.approx(1 - 35 / 45)
    assert estimate.low <= estimate.value <= estimate.high
    assert math.isnan(mean_estimate([1.0]).low)
    assert math.isnan(mean_estimate([]).value)


def test_table_and_picture_show_a_run(pairs: list[Pair], tmp_path: Path) -> None:
    summary = summarize(pairs)
    console = Console(record=True, width=140, file=(tmp_path / "table.txt").open("w"))
    console.print(tables(summary))
    text = console.export_text()
    console.file.close()
    assert "3/3" in text
    assert "final 3" in text
    assert "hidden tool time" in text
    draw(pairs, summary, tmp_path / "compare.png")
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    json.dumps(summary)


def test_g01_distribution_test_passes_equal_arms_and_catches_a_shift(pairs: list[Pair]) -> None:
    assert same_distribution(p_values(pairs))
    many = [pairs[i % 3] for i in range(30)]
    shifted = [Pair(p.sequential, replace(p.speculative, verdict=Verdict(0.0))) for p in many]
    assert p_values(shifted)["reward"] < 0.001
    assert not same_distribution(p_values(shifted))


def test_a_run_whose_parts_failed_shows_nothing(pairs: list[Pair]) -> None:
    for pair in pairs:
        for result in (pair.sequential, pair.speculative):
            result.trajectory.stop = StopReason.ENGINE_ERROR
            result.trajectory.error = "engine is gone"
    assert summarize(pairs)["identical"] == 3  # alike in their failure
    judgement = judge(pairs, exact=True)
    assert not judgement.good
    assert "6 rollouts ended by an error" in judgement.line
    assert "engine is gone" in judgement.line


def test_few_pairs_can_not_tell_distributions_apart_and_it_is_said(pairs: list[Pair]) -> None:
    shifted = [Pair(p.sequential, replace(p.speculative, verdict=Verdict(0.0))) for p in pairs]
    assert "too few different pairs (3 < 14)" in judge(shifted, exact=False).line
    assert not judge(shifted, exact=True).good
    assert not judge([shifted[i % 3] for i in range(30)], exact=False).good


def test_a_third_arm_stands_beside_the_others(pairs: list[Pair], tmp_path: Path) -> None:
    wrong = rollouts(Move.WRONG)
    three = [Pair(pair.sequential, pair.speculative, c) for pair, c in zip(pairs, wrong, strict=True)]
    summary = summarize(three)
    alone = summary["observation_only"]
    assert alone == summarize([Pair(pair.sequential, c) for pair, c in zip(pairs, wrong, strict=True)])
    assert {**summarize(pairs), "observation_only": alone} == summary
    assert "observation_only" not in summarize(pairs)
    console = Console(record=True, width=160)
    console.print(tables(summary))
    shown = console.export_text()
    row = next(line for line in shown.splitlines() if "hidden tool time" in line)
    assert row.index(f"{100 * alone['hidden_tool_time']:.1f} %") < row.index(
        f"{100 * summary['hidden_tool_time']:.1f} %"
    )
    draw(three, summary, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
