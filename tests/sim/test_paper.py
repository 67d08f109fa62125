"""The published rows that a few seconds can hold: the rest is `obsspec simulate paper`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from obsspec.sim.figures import Figures
from obsspec.sim.orderings import orderings
from obsspec.sim.paper import DEFAULT_TOOL_S, Effort, Paper, default_skills, terminal
from obsspec.sim.paper_tables import TABLES
from obsspec.sim.published import tables
from obsspec.sim.report import all_good, paper_json, paper_tables
from obsspec.sim.results import Result

ROW = Result("depth", "D=1", "agent latency", 38.06, 37.5, "s", 0.03, 0.38)


@pytest.fixture(scope="module")
def reference() -> tuple[Figures, dict[int, Figures]]:
    """The sequential run, and depths 1 and 8, with a batch of 256 rollouts each."""
    paper = Paper(Effort(batches=1))
    spec, sequential = paper.calibrate("8B", terminal(DEFAULT_TOOL_S), tables()["main"][0]["agent_s"])
    return sequential, {depth: paper.run("8B", spec, default_skills(), depth=depth) for depth in (1, 8)}


def test_latencies_are_within_their_bounds(reference: tuple[Figures, dict[int, Figures]]) -> None:
    sequential, by_depth = reference
    assert sequential.agent_s == pytest.approx(41.98, rel=0.01)
    assert by_depth[1].agent_s == pytest.approx(38.06, rel=0.03)
    assert by_depth[8].agent_s == pytest.approx(38.47, rel=0.03)


def test_what_nothing_was_fitted_to_comes_out(reference: tuple[Figures, dict[int, Figures]]) -> None:
    sequential, by_depth = reference
    rows = {row["depth"]: row for row in tables()["depth"]}
    for depth, figures in by_depth.items():
        assert figures.realized_depth == pytest.approx(rows[depth]["realized_depth"], rel=0.1)
        assert figures.discarded_completed == pytest.approx(rows[depth]["discarded_policy_tokens"], rel=0.15)
        assert figures.decode_rate == pytest.approx(rows[depth]["policy_tok_s"], rel=0.1)
        assert figures.match == pytest.approx(0.6645, abs=0.01)
    assert sequential.calls == pytest.approx(11.24, abs=0.02)


def test_every_published_table_is_simulated() -> None:
    known = {"world_model_size": "world model size", "cotraining": "co-training"}
    named = {known.get(name, name) for name in tables()} - {"commands"}  # which is all given
    assert named == set(TABLES)


def test_a_row_out_of_bounds_or_out_of_order_is_not_good() -> None:
    slow = replace(ROW, row="K=8", table="breadth", published=47.68, ours=47.5, bound=0.06)
    fast = replace(ROW, table="breadth")
    assert all_good([fast, slow])
    assert not all_good([replace(fast, ours=36.0)])
    wrong = [replace(fast, ours=48.0, bound=0.0), replace(slow, bound=0.0)]
    (ordering,) = orderings(wrong)
    assert (ordering.clear, ordering.right, all_good(wrong)) == (1, 0, False)
    equal = replace(fast, row="other", published=38.1, ours=45.0, bound=0.0)
    assert all_good([fast, equal])  # a published difference that is noise has no order


def test_the_report_names_what_is_fitted_and_where_the_numbers_come_from() -> None:
    assert len(paper_json([ROW])["fitted"]) == 2
    assert "2610.15246" in paper_json([ROW])["source"]
    assert paper_json([ROW])["results"][0]["error"] == pytest.approx(37.5 / 38.06 - 1)
    assert paper_tables([ROW]).renderables
