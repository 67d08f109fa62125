"""The tables of `obsspec simulate paper`, for a terminal, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from obsspec.sim.orderings import Ordering, orderings
from obsspec.sim.paper import DEVICE, DEVICES, REPLICAS, SEQUENCE_S, SERVING, TURN_SPREAD
from obsspec.sim.results import Result

SOURCE = "published: ObsSpec, arXiv 2610.15246"
FITTED = {
    "spread of turn lengths": f"{TURN_SPREAD:g}, standard deviation of the logarithm of a turn's tokens",
    "host time of a sequence": f"{SEQUENCE_S * 1e6:g} us that each running sequence adds to an engine step",
}
ASSUMED = {
    "policy server": f"{REPLICAS} replicas of {DEVICES} x {DEVICE.name}, sticky routing, no priorities",
    "share of peak": f"{SERVING.bandwidth:.0%} of bandwidth, {SERVING.flops:.0%} of arithmetic",
    "overhead of a step": f"{SERVING.overhead_s * 1000:g} ms",
}


def paper_tables(results: Sequence[Result]) -> Group:
    names = list(dict.fromkeys(result.table for result in results))
    parts: list[RenderableType] = []
    for name in names:
        parts += [_table(name, [result for result in results if result.table == name]), ""]
    return Group(*parts, _orderings(orderings(results)), "", *_said())


def _table(name: str, results: Sequence[Result]) -> Table:
    table = Table(title=name, title_justify="left")
    for column in ("row", "figure"):
        table.add_column(column, no_wrap=True)
    for column in ("published", "simulated", "error"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    last = ""
    for result in results:
        table.add_row(
            result.row if result.row != last else "",
            result.what,
            _figure(result.published, result.published_se, result.unit),
            _figure(result.ours, result.se, result.unit),
            _error(result),
            Text(result.note, style="dim"),
        )
        last = result.row
    return table


def _figure(value: float, se: float, unit: str) -> str:
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 or unit == "%" else 2
    spread = f" ± {se:.{digits}f}" if se else ""
    return f"{value:.{digits}f}{spread} {unit}".rstrip()


def _error(result: Result) -> Text:
    if result.unit == "%":
        return Text(f"{result.ours - result.published:+.1f} points")
    if not result.bound:
        return Text(f"{result.error:+.1%}")
    style = "green" if result.good else "bold red"
    return Text(f"{result.error:+.1%} {'<' if result.good else '>'} {result.bound:.0%}", style=style)


def _orderings(found: Sequence[Ordering]) -> Table:
    table = Table(title="Orderings: pairs of rows that differ by two standard errors or more", title_justify="left")
    for column in ("table", "clear pairs", "ordered as published", "largest other gap", "published"):
        table.add_column(column, justify="left" if column == "table" else "right")
    for ordering in found:
        gap, known = (f"{value:.1f} %" if value else "-" for value in (ordering.unclear, ordering.published_unclear))
        right = Text(str(ordering.right), style="green" if ordering.good else "bold red")
        table.add_row(ordering.table, str(ordering.clear), right, gap, known)
    return table


def _said() -> list[str]:
    lines = [f"fitted: {name} = {value}" for name, value in FITTED.items()]
    return [*lines, *(f"assumed: {name} = {value}" for name, value in ASSUMED.items()), SOURCE]


def paper_json(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "fitted": FITTED,
        "assumed": ASSUMED,
        "results": [{**asdict(result), "error": result.error, "good": result.good} for result in results],
        "orderings": [asdict(ordering) for ordering in orderings(results)],
    }


def all_good(results: Sequence[Result]) -> bool:
    return all(result.good for result in results) and all(ordering.good for ordering in orderings(results))
