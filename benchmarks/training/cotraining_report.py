"""The table and the picture of `benchmarks.training.cotraining`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from obsspec.cli.console import wide_console
from obsspec.compare.statistics import Estimate, share_estimate

LABELS = ("lm alone", "cascade")


def show(result: dict[str, Any], console: Console | None = None) -> None:
    console = console or wide_console()
    console.print(_matches(result))
    if any(label in row for row in result["rows"] for label in LABELS):
        console.print(_latencies(result["rows"]))
    if result.get("unseen"):
        console.print(_unseen(result["unseen"], [row["step"] for row in result["rows"]]))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _matches(result: dict[str, Any]) -> Table:
    table = _table(
        f"Exact match on held-out rollouts of {result['tasks']} tasks, %",
        *("policy step", "reward", "calls", "updated", "frozen", "difference [95 %]"),
    )
    for row in (r for r in result["rows"] if "match" in r):
        table.add_row(str(row["step"]), *_match_cells(row))
        for name, part in row.get("families", {}).items():
            table.add_row(f"{name} families", *_match_cells({"reward": None, **part}))
    if "hindsight" in result:
        row = result["hindsight"]
        table.add_section()
        table.add_row(f"{row['step']}, newest world model", *_match_cells(row))
    return table


def match_line(row: dict[str, Any]) -> str:
    reward, calls, updated, frozen, difference = _match_cells(row)
    return f"reward {reward} %, match updated {updated} %, frozen {frozen} % of {calls} calls, difference {difference}"


def _match_cells(row: dict[str, Any]) -> list[str]:
    match = row["match"]
    shares = (f"{100 * match[name][0]:.1f}" for name in ("updated", "frozen"))
    reward = "" if row["reward"] is None else f"{100 * row['reward']:.1f}"
    return [reward, str(row["calls"]), *shares, _points(match["difference"])]


def _points(values: Sequence[float]) -> str:
    value, low, high = (100 * v for v in values)
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def _latencies(rows: Sequence[dict[str, Any]]) -> Table:
    names = ("policy step", "sources", "pairs", "sequential s", "updated -%", "frozen -%", "updated - frozen [95 %]")
    table = _table("Agent latency, and by how much speculation reduces it", *names, "match updated", "match frozen")
    for row, label in ((row, label) for row in rows for label in LABELS if label in row):
        found = row[label]
        sequential = sum(found["sequential_s"]) / 2
        table.add_row(
            *(str(row["step"]), label, str(found["pairs"]), f"{sequential:.2f}"),
            *(f"{100 * found[name][0]:.1f}" for name in ("updated_reduction", "frozen_reduction")),
            _points(found["reduction_difference"]),
            *(f"{100 * found['match'][name]:.1f}" for name in ("updated", "frozen")),
        )
    return table


def _unseen(rows: Sequence[dict[str, Any]], marks: Sequence[int]) -> Table:
    """Steps between two measured versions are taken together: single ones have few tasks."""
    names = ("policy steps", "tasks", "observations", "updated", "frozen", "difference [95 %]")
    table = _table("Exact match on the run's own turns, before they were trained on, %", *names)
    last = max(row["step"] for row in rows)
    starts = [0, *(mark for mark in marks if 0 < mark <= last)]
    for start, stop in zip(starts, [*starts[1:], last + 1], strict=True):
        part = [row for row in rows if start <= row["step"] < stop]
        if part:
            observed = str(sum(row["observations"] for row in part))
            shares = (f"{100 * unseen_share(part, name).value:.1f}" for name in ("updated", "frozen"))
            difference = unseen_share(part, "updated", "frozen")
            interval = _points((difference.value, difference.low, difference.high))
            table.add_row(f"{start} to {stop - 1}", str(len(part)), observed, *shares, interval)
    return table


def unseen_share(rows: Sequence[dict[str, Any]], name: str, less: str | None = None) -> Estimate:
    """Of the observations, the share that a world model matches, or by how much more than another; over tasks."""
    count = [row["observations"] for row in rows]
    return share_estimate([(row[name] - (row[less] if less else 0)) * row["observations"] for row in rows], count)


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    seen = result.get("unseen", [])
    count = 2 if seen else 1
    figure, grid = pyplot.subplots(1, count, figsize=(5.5 * count, 4), sharey=True, squeeze=False)
    panels = grid[0]
    rows = [row for row in result["rows"] if "match" in row]
    for name, color in (("updated", "C0"), ("frozen", "C1")):
        values = [row["match"][name] for row in rows]
        errors = [[v[0] - v[1] for v in values], [v[2] - v[0] for v in values]]
        steps = [row["step"] for row in rows]
        panels[0].errorbar(
            steps, [v[0] for v in values], yerr=errors, fmt="o-", color=color, capsize=3, label=f"{name} world model"
        )
        for axes in panels[1:]:
            steps = sorted({row["step"] for row in seen})
            shares = [unseen_share([row for row in seen if row["step"] == step], name).value for step in steps]
            axes.plot(steps, shares, ".", color=color, alpha=0.4)
            axes.plot(steps, _smooth(shares), color=color, label=f"{name} world model")
    panels[0].set(ylabel="exact match")
    for axes, title in zip(panels, ("Held-out tasks", "The run's own turns, not yet trained on"), strict=False):
        axes.set(xlabel="policy step", title=title)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _smooth(values: Sequence[float], width: int = 9) -> list[float]:
    """Moving average."""
    windows = [values[max(0, i - width // 2) : i + width // 2 + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]
