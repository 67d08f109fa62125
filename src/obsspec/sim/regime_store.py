"""The Parquet file of the map of regimes, and its table."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (pyarrow is not typed)
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Group
from rich.table import Table
from rich.text import Text

from obsspec.sim.regime import GATED, NEVER_BELOW, Measured
from obsspec.values import ConfigError

WORST = 6  # points of each arm that are shown

Row = dict[str, Any]


def rows(measured: Sequence[Measured]) -> list[Row]:
    """One for each arm at each point. Seconds, tokens a rollout, shares."""
    return [_row(each) for each in measured]


def _row(each: Measured) -> Row:
    figures, sequential = each.figures, each.sequential
    reduction, se = figures.reduction(sequential)
    return {
        "tool_s": each.point.tool_s,
        "tokens": each.point.tokens,
        "match": each.point.match,
        "load": each.point.load,
        "arm": each.arm,
        "rollouts": figures.rollouts,
        "sequential_s": sequential.agent_s,
        "agent_s": figures.agent_s,
        "sequential_p99_s": sequential.agent_p99_s,
        "agent_p99_s": figures.agent_p99_s,
        "speed": each.speed,
        "reduction": reduction,
        "reduction_se": se,
        "hidden_tool_time": figures.hidden(sequential),
        "discarded_tokens": figures.discarded,
        "realized_depth": figures.realized_depth,
        "sent_ahead": figures.sent,
        "refused": figures.refused,
        "matched": figures.match,
        "attempts": figures.attempts,
        "gated": figures.gated,
        "failed": figures.failed,
        "decode_rate": figures.decode_rate,
        "sequential_decode_rate": sequential.decode_rate,
        "in_flight": figures.in_flight,
    }


def write(measured: Sequence[Measured], path: Path) -> None:
    """Raises `ConfigError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows(measured)), path, compression="zstd")
    except OSError as error:
        raise ConfigError(f"can not write {path}: {error.strerror or error}") from error


def below(measured: Sequence[Measured]) -> list[Measured]:
    """Points at which a gated arm is slower than it may ever be."""
    return [each for each in measured if each.arm in GATED and each.speed < NEVER_BELOW]


def regime_tables(measured: Sequence[Measured]) -> Group:
    arms = list(dict.fromkeys(each.arm for each in measured))
    return Group(_summary(measured, arms), "", *(_worst(arm, measured) for arm in arms))


def _summary(measured: Sequence[Measured], arms: Sequence[str]) -> Table:
    table = Table(title="All points: sequential agent latency over this arm's", title_justify="left")
    for column in ("arm", "points", "worst", "median", "best", f"below {NEVER_BELOW}"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm in arms:
        speeds = sorted(each.speed for each in measured if each.arm == arm)
        slow = sum(speed < NEVER_BELOW for speed in speeds)
        style = "bold red" if slow and arm in GATED else ""
        middle = speeds[len(speeds) // 2]
        shown = (f"{speed:.3f}" for speed in (speeds[0], middle, speeds[-1]))
        table.add_row(arm, str(len(speeds)), *shown, Text(str(slow), style=style))
    return table


def _worst(arm: str, measured: Sequence[Measured]) -> Table:
    table = Table(title=f"{arm}: where it gives least and most", title_justify="left")
    for column in (
        "tool s",
        "tokens",
        "match",
        "in flight",
        "sequential",
        "this arm",
        "reduction",
        "hidden",
        "discarded",
    ):
        table.add_column(column, justify="right")
    ordered = sorted((each for each in measured if each.arm == arm), key=lambda each: each.speed)
    shown = ordered if len(ordered) <= 2 * WORST else [*ordered[:WORST], *ordered[-WORST:]]
    for each in shown:
        row = _row(each)
        table.add_row(
            f"{row['tool_s']:g}",
            f"{row['tokens']:g}",
            f"{row['match']:g}",
            str(row["load"]),
            f"{row['sequential_s']:.2f} s",
            f"{row['agent_s']:.2f} s",
            f"{100 * row['reduction']:.1f} ± {100 * row['reduction_se']:.1f} %",
            f"{100 * row['hidden_tool_time']:.0f} %",
            f"{row['discarded_tokens']:.0f}",
        )
    return table
