"""Figures of runs in which the policy wrote anything at all, or nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from obsspec.compare.distribution import p_values
from obsspec.compare.picture import draw
from obsspec.compare.summary import Pair, summarize
from obsspec.compare.table import tables
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.trace import SpeculationReport
from obsspec.testing.world_model import Move
from obsspec.values import StopReason
from tests.compare.conftest import rollouts


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair(rollouts(None, 1)[0], rollouts(Move.WRONG, 1)[0])


def show(pairs: list[Pair], target: Path) -> str:
    summary = {**summarize(pairs), "exact": True, "distribution_p": p_values(pairs)}
    draw(pairs, summary, target / "compare.png")
    assert (target / "compare.png").read_bytes().startswith(b"\x89PNG")
    console = Console(width=140)
    with console.capture() as capture:
        console.print(tables(summary))
    return capture.get()


COMMANDS = {
    "$\\frac$": "$\\frac$",  # mathtext that does not parse
    "_^_$_$": "_^_$_$",
    "$a$b": "$a$b",
    "[/bin]": "[/bin]",  # markup that does not parse
    "[bold]x": "[bold]x",
    "a\\": "a\\",
    "x" * 400: "x" * 20,
    "\x1b[31m": "[31m",
    "\x00\x07": "\N{REPLACEMENT CHARACTER}",
    "日本": "日本",
    " \n": "(empty)",
}


def test_a_command_is_shown_as_it_was_written(pair: Pair, tmp_path: Path) -> None:
    report = pair.speculative.speculation
    assert report is not None
    attempts = [replace(report.attempts[0], command=command) for command in COMMANDS]
    strange = replace(pair.speculative, speculation=replace(report, attempts=attempts))
    table = show([Pair(pair.sequential, strange)], tmp_path)
    assert [shown for shown in COMMANDS.values() if shown not in table] == []
    assert "\x1b" not in table


def test_rollouts_without_a_turn_have_figures(pair: Pair, tmp_path: Path) -> None:
    for end_s in (0.0, 0.5):
        nothing = Trajectory("x", stop=StopReason.CONTEXT_LIMIT, end_s=end_s)
        a = replace(pair.sequential, trajectory=nothing)
        b = replace(pair.speculative, trajectory=nothing, speculation=SpeculationReport())
        assert re.search(r"identical rollouts\W+2/2", show([Pair(a, b)] * 2, tmp_path))
