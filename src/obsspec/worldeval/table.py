"""The tables of an evaluation, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from obsspec.compare.table import label, percent

COMMANDS = 15  # rows of the table of commands


def tables(summary: dict[str, Any]) -> Group:
    parts: list[RenderableType] = []
    for name, data in summary.items():
        parts += [_sources(name, data), *_notes(data), *_errors(data), ""]
        last = list(data["protocols"])[-1]
        protocol = data["protocols"][last]
        if protocol["said_by"]:
            parts += [_said_by(protocol["said_by"], f"{label(name)}, {last}: whose candidate the cascade gave"), ""]
            parts += [_commands(protocol["commands"], f"{label(name)}, {last}: the cascade by command"), ""]
    return Group(*parts)


def _sources(name: str, data: dict[str, Any]) -> Table:
    breadth = data["breadth"]
    table = Table(title=f"{label(name)}: {data['calls']} calls of {data['tasks']} tasks", title_justify="left")
    table.add_column("source", no_wrap=True)
    columns = ["speaks", "exact", "95 % CI", "non-empty", "precision", *(["top-K"] if breadth > 1 else [])]
    failed = any(f["failed"] for part in data["protocols"].values() for f in part["sources"].values())
    for column in (*columns, "tool time", "p50 ms", "p95 ms", *(["failed"] if failed else [])):
        table.add_column(column, justify="right", no_wrap=column == "95 % CI")
    for protocol, part in data["protocols"].items():
        table.add_section()
        table.add_row(protocol, style="bold")
        for source, f in part["sources"].items():
            top = [percent(f["top"])] if breadth > 1 else []
            fails = [str(f["failed"] or "")] if failed else []
            table.add_row(f"  {label(source)}", *_shares(f), *top, percent(f["hideable"]), *_times(f), *fails)
    return table


def _shares(f: dict[str, Any]) -> list[str]:
    low, high = f["exact_ci"]
    shares = (percent(f[name]) for name in ("exact_nonempty", "precision"))
    return [percent(f["spoke"]), percent(f["exact"]), f"{_bare(low)}-{_bare(high)}", *shares]


def _times(f: dict[str, Any]) -> list[str]:
    return [_ms(f[name]) for name in ("latency_p50_s", "latency_p95_s")]


def _notes(data: dict[str, Any]) -> Iterator[str]:
    yield f"outputs that are not empty: {percent(data['nonempty'])}; tool time weighed by {data['weighed_by']}"
    if data["replayed"]:
        yield f"ceiling: {percent(data['ceiling_replay'])} of {data['replayed']} calls printed the same when run again"
    if data["repeated"]:
        last = list(data["protocols"].values())[-1]
        yield (
            f"ceiling: {percent(last['ceiling_repeat'])} of the calls that repeat a call with all its history "
            "in the task print the same again"
        )


def _errors(data: dict[str, Any]) -> Iterator[str]:
    """The first error of each source, for whoever has to mend it."""
    for source, error in data["errors"].items():
        yield f"[red]{label(source)} failed:[/] {label(error, 300)}"


def _said_by(said_by: dict[str, Any], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("source")
    for name in ("first", "exact", "precision", "confidence"):
        table.add_column(name, justify="right")
    for source, f in said_by.items():
        shares = (percent(f[name]) for name in ("share", "exact", "precision", "confidence"))
        table.add_row(label(source), *shares)
    return table


def _commands(commands: dict[str, Any], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("command")
    for name in ("calls", "speaks", "exact", "non-empty", "precision", "tool time", "always no output", "p50 ms"):
        table.add_column(name, justify="right")
    for command, f in list(commands.items())[:COMMANDS]:
        shares = (f[name] for name in ("spoke", "exact", "exact_nonempty", "precision", "hideable", "no_output"))
        table.add_row(label(command), str(f["calls"]), *map(percent, shares), _ms(f["latency_p50_s"]))
    return table


def _bare(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


def _ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{1000 * seconds:.2f}"


def probe_tables(figures: dict[str, Any]) -> Group:
    """What `obsspec world probe` found, one line for each target, and the causes of all of them."""
    table = Table(title="Commands that print the same in every fresh sandbox", title_justify="left")
    table.add_column("")
    for name in ("trajectories", "commands", "the same", "and as recorded"):
        table.add_column(name, justify="right")
    causes = Table(title="Why the others do not", title_justify="left")
    for name in ("", "cause", "commands", "such as"):
        causes.add_column(name)
    for target, f in figures.items():
        shares = (percent(f[name]) for name in ("ceiling", "as_recorded"))
        table.add_row(label(target, 40), str(f["trajectories"]), str(f["commands"]), *shares)
        for cause, found in f["causes"].items():
            causes.add_row(label(target, 40), cause, str(found["commands"]), label(found["examples"][0], 50))
    return Group(table, *([causes] if causes.rows else []))
