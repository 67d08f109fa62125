"""The published results that simulations are held against, and what follows from them by arithmetic alone.

Numbers: ObsSpec, arXiv 2610.15246 (`published.json`). Nothing here is fitted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any

from obsspec.sim.sources import Skill
from obsspec.sim.workload import Command

Row = dict[str, Any]
CALLS = 11.24  # a rollout; from the slope of latency over tool latency of the three sandboxes
OTHERS = "others"
RUN_S = 0.02  # of a quick command in a remote sandbox, shell and canonical text included; a local fork takes 5 to 30 ms


@cache
def tables() -> Mapping[str, list[Row]]:
    return json.loads(files("obsspec.sim").joinpath("published.json").read_text(encoding="utf-8"))["tables"]


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One command class: `count` calls; shares of attempts."""

    name: str
    count: float
    tool_s: float
    tool_sd_s: float
    prediction_s: float
    prediction_sd_s: float
    match: float
    cancel: float


@cache
def command_rows() -> tuple[CommandRow, ...]:
    """The published commands and all others as one class: what is left of the totals of the same experiment.

    Standard deviations are the published standard errors times the root of the counts.
    """
    rows = [
        CommandRow(
            row["command"],
            row["count"],
            row["tool_s"],
            row["tool_se"] * math.sqrt(row["count"]),
            row["wm_s"],
            row["wm_se"] * math.sqrt(row["count"]),
            row["match_pct"] / 100,
            row["cancel_pct"] / 100,
        )
        for row in tables()["commands"]
    ]
    total = tables()["world_model_size"][0]
    attempts = 4096 * CALLS
    left = attempts - sum(row.count for row in rows)
    tool_s = (tables()["sandboxes"][0]["tool_s"] * attempts - sum(r.tool_s * r.count for r in rows)) / left
    others = CommandRow(
        OTHERS,
        left,
        tool_s,
        tool_s,  # not published; as wide as their mean
        (total["wm_s"] * attempts - sum(r.prediction_s * r.count for r in rows)) / left,
        0.15,
        (total["match_pct"] / 100 * attempts - sum(r.match * r.count for r in rows)) / left,
        (total["cancel_pct"] / 100 * attempts - sum(r.cancel * r.count for r in rows)) / left,
    )
    return (*rows, others)


def commands() -> tuple[Command, ...]:
    """What the quickest command takes, a `cat`, is taken to be the way there and back for all, but for `RUN_S`."""
    way_s = min(row.tool_s for row in command_rows()) - RUN_S
    return tuple(Command(r.name, r.count, r.tool_s, r.tool_sd_s, min(1.0, way_s / r.tool_s)) for r in command_rows())


def skills(match: float, cancel: float, prediction_s: float) -> dict[str, Skill]:
    """By command, such that all commands together have these shares and this mean latency.

    Commands keep their odds of a match relative to each other, and their shares of lateness and latency.
    """
    rows = command_rows()
    usual_s, usual_cancel = _mean("prediction_s"), _mean("cancel")
    shift = _shift(match)
    found: dict[str, Skill] = {}
    for row in rows:
        slower = prediction_s / usual_s
        wanted = min(0.9, row.cancel * cancel / usual_cancel)
        late = max(0.0, wanted - _race(row, slower))
        found[row.name] = Skill(
            match=min(_shifted(row.match, shift) * (1 - late) / (1 - wanted), 1 - late),
            latency_s=row.prediction_s * slower,
            latency_sd_s=row.prediction_sd_s * slower,
            late=late,
        )
    found[""] = Skill(match, prediction_s, prediction_s, cancel)
    return found


def with_breadth(found: Mapping[str, Skill], breadth: int, realized: float, match_any: float) -> dict[str, Skill]:
    """The same with further candidates: `realized` distinct ones of `breadth`, one of which is right so often."""
    usual = sum(found[r.name].match * r.count for r in command_rows()) / _count()
    fresh = (realized - 1) / (breadth - 1) if breadth > 1 else 0.0
    more = match_any - usual
    return {name: replace(s, fresh=fresh, match_any=min(1 - s.late, s.match + more)) for name, s in found.items()}


def _race(row: CommandRow, slower: float) -> float:
    """How often a prediction loses against the tool by the spread of their latencies alone: both are lognormal."""
    tool, guess = (row.tool_s, row.tool_sd_s), (row.prediction_s * slower, row.prediction_sd_s * slower)
    variances = [math.log1p((sd / mean) ** 2) for mean, sd in (tool, guess)]
    ahead = math.log(tool[0]) - variances[0] / 2 - math.log(guess[0]) + variances[1] / 2
    return NormalDist().cdf(-ahead / math.sqrt(sum(variances)))


def _count() -> float:
    return sum(row.count for row in command_rows())


def _mean(field: str) -> float:
    return sum(getattr(row, field) * row.count for row in command_rows()) / _count()


def _shifted(share: float, shift: float) -> float:
    odds = math.log(share / (1 - share)) + shift
    return 1 / (1 + math.exp(-odds))


def _shift(match: float) -> float:
    """What to add to the log odds of every command so that the mean share of matches is `match`."""
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(_shifted(row.match, middle) * row.count for row in command_rows()) / _count()
        low, high = (middle, high) if mean < match else (low, middle)
    return low
