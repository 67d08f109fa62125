"""The table of `obsspec simulate plan`, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from obsspec.sim.figures import Figures
from obsspec.sim.plan import Plan, Planned
from obsspec.sim.recorded import RecordedRun


def plan_tables(plan: Plan, sequential: Figures, own: Planned | None, lines: Sequence[Planned]) -> Group:
    return Group(_check(plan.run, sequential, own), "", _sources(plan.run), "", _lines(sequential, lines))


def _check(run: RecordedRun, sequential: Figures, own: Planned | None) -> Table:
    table = Table(title="Is the simulation right about the run itself? Agent latency", title_justify="left")
    for column in ("pipeline", "measured", "simulated", "error"):
        table.add_column(column, justify="left" if column == "pipeline" else "right")
    for name, measured, figures in (
        ("sequential", run.sequential_s, sequential),
        (f"{_arm(own)}, as recorded" if own else "", run.speculative_s, own.figures if own else None),
    ):
        if figures is not None:
            error = f"{figures.agent_s / measured - 1:+.1%}" if measured else "-"
            table.add_row(name, f"{measured:.2f} s" if measured else "-", f"{figures.agent_s:.2f} s", error)
    return table


def _arm(line: Planned) -> str:
    return f"D={line.depth} K={line.breadth}{', guarded' if line.guarded else ''}"


def _sources(run: RecordedRun) -> Table:
    turns = max(1, len(run.guesses))
    table = Table(title=f"What the sources said in time of {len(run.guesses)} turns", title_justify="left")
    for column in ("source", "said", "right", "median latency"):
        table.add_column(column, justify="left" if column == "source" else "right")
    for name in run.sources:
        own = [guess for turn in run.guesses for guess in turn if guess.source == name]
        seconds = sorted(guess.seconds for guess in own)[len(own) // 2]
        right = sum(guess.right for guess in own) / len(own)
        table.add_row(escape(name), f"{len(own) / turns:.0%}", f"{right:.0%}", f"{seconds:.3f} s")
    return table


def _lines(sequential: Figures, lines: Sequence[Planned]) -> Table:
    table = Table(title="What to expect, simulated; with the gate", title_justify="left")
    columns = ("sources", "sent ahead", "D", "K", "agent latency", "reduction", "hidden", "p99", "match", "discarded")
    for column in columns:
        table.add_column(column, justify="left" if column == "sources" else "right")
    table.add_row("(sequential)", "", "", "", f"{sequential.agent_s:.2f} s", "", "", f"{sequential.agent_p99_s:.1f} s")
    best = max(lines, key=lambda line: line.figures.reduction(sequential)[0])
    for line in lines:
        figures = line.figures
        reduction, se = figures.reduction(sequential)
        table.add_row(
            escape(", ".join(line.sources)),
            "yes" if line.guarded else "no",
            str(line.depth),
            str(line.breadth),
            f"{figures.agent_s:.2f} s",
            f"{100 * reduction:.1f} ± {100 * se:.1f} %",
            f"{100 * figures.hidden(sequential):.0f} %",
            f"{figures.agent_p99_s:.1f} s",
            f"{figures.match:.0%}",
            f"{figures.discarded:.0f}",
            style="bold green" if line is best and reduction > 0 else "",
        )
    return table


def plan_json(plan: Plan, sequential: Figures, own: Planned | None, lines: Sequence[Planned]) -> dict[str, Any]:
    run = plan.run
    return {
        "measured": {"sequential_s": run.sequential_s, "speculative_s": run.speculative_s},
        "engine": asdict(run.cost),
        "sequential_s": sequential.agent_s,
        "recorded": _line_json(own, sequential) if own else None,
        "lines": [_line_json(line, sequential) for line in lines],
    }


def _line_json(line: Planned, sequential: Figures) -> dict[str, Any]:
    reduction, se = line.figures.reduction(sequential)
    return {
        "sources": line.sources,
        "depth": line.depth,
        "breadth": line.breadth,
        "guarded": line.guarded,
        "agent_s": line.figures.agent_s,
        "agent_p99_s": line.figures.agent_p99_s,
        "reduction": reduction,
        "reduction_se": se,
        "hidden_tool_time": line.figures.hidden(sequential),
        "match": line.figures.match,
        "discarded_policy_tokens": line.figures.discarded,
    }
