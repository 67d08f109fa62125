"""The tables of `obsspec simulate reference`, for a terminal, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table

from obsspec.sim import published
from obsspec.sim.paper import DEVICE, DEVICES, IN_FLIGHT, OUTSIDE_S
from obsspec.sim.reference import Line, Variant
from obsspec.sim.report import SOURCE


def reference_tables(
    variant: Variant, batches: Sequence[Line], continuous: Sequence[Line], causes: Sequence[Line]
) -> Group:
    return Group(_arms(batches, continuous), "", _causes(causes), "", *_said(variant))


def published_row() -> dict[str, float]:
    """What the publication says of its speculative run, and what follows from it."""
    sequential, speculative = published.tables()["main"][:2]
    saved = sequential["agent_s"] - speculative["agent_s"]
    tool_s = published.CALLS * published.tables()["sandboxes"][0]["tool_s"]
    discarded = published.tables()["depth"][0]["discarded_policy_tokens"]
    return {
        "sequential_s": sequential["agent_s"],
        "agent_s": speculative["agent_s"],
        "reduction": saved / sequential["agent_s"],
        "hidden": saved / tool_s,
        "discarded_per_s": discarded / saved,
        "sequential_rollouts_per_h": sequential["rollouts_per_h"],
        "rollouts_per_h": speculative["rollouts_per_h"],
    }


def holds(lines: Sequence[Line]) -> bool:
    """Speculative lines: slow rollouts are faster, and a second saved costs fewer tokens than it did there."""
    most = published_row()["discarded_per_s"]
    return all(
        line.figures.agent_p99_s < line.sequential.agent_p99_s and line.hidden > 0 and line.discarded_per_s < most
        for line in lines
    )


def _arms(batches: Sequence[Line], continuous: Sequence[Line]) -> Table:
    table = Table(title="The reference workload", title_justify="left")
    for column in ("arm", "in flight", "agent latency", "p99", "reduction", "hidden", "discarded", "rollouts/h"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    row = published_row()
    table.add_row(
        "published sequential",
        "256",
        f"{row['sequential_s']:.2f} s",
        *[""] * 4,
        _count(row["sequential_rollouts_per_h"]),
    )
    table.add_row(
        "published speculation, D=1, a second pool",
        "256",
        f"{row['agent_s']:.2f} s",
        "",
        f"{row['reduction']:.1%}",
        f"{row['hidden']:.0%}",
        f"{row['discarded_per_s']:.0f}",
        _count(row["rollouts_per_h"]),
    )
    for title, lines in ((f"batches of {IN_FLIGHT}", batches), ("one rollout after the other", continuous)):
        table.add_section()
        table.add_row(title, style="italic")
        for line in lines:
            table.add_row(*_arm(line, rate=lines is continuous))
    return table


def _arm(line: Line, *, rate: bool) -> list[str]:
    figures = line.figures
    shown = [line.name, str(line.in_flight), f"{figures.agent_s:.2f} s", f"{figures.agent_p99_s:.1f} s"]
    reduction, se = figures.reduction(line.sequential)
    if figures is line.sequential:
        shown += ["", "", ""]
    else:
        shown += [f"{reduction:.1%} ± {se:.1%}", f"{line.hidden:.0%}", f"{line.discarded_per_s:.1f}"]
    return [*shown, _count(figures.rollouts_per_h) if rate else ""]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _causes(causes: Sequence[Line]) -> Table:
    table = Table(title="Where tool time stays, one cause after the other", title_justify="left")
    for column in ("cause, with all above it", "in flight", "hidden", "lost to it", "discarded"):
        table.add_column(column, justify="left" if column.startswith("cause") else "right")
    before = 1.0
    for line in causes:
        lost = f"{100 * (before - line.hidden):+.1f} points"
        table.add_row(line.name, str(line.in_flight), f"{line.hidden:.1%}", lost, f"{line.discarded_per_s:.1f}")
        before = line.hidden
    return table


def _said(variant: Variant) -> list[str]:
    return [
        "hidden: (sequential - this) / tool time; discarded: policy tokens, cancelled ones too, for each second saved",
        f"assumed: the cascade is right {variant.match:.0%} of the time after {variant.prediction_s:g} s, and needs no "
        f"device; D={variant.depth}; outside of batches, set-up and verifier take {OUTSIDE_S:g} s",
        f"assumed: {variant.replicas} replicas of {DEVICES} x {DEVICE.name}; committed requests start first",
        SOURCE,
    ]


def reference_json(
    variant: Variant, batches: Sequence[Line], continuous: Sequence[Line], causes: Sequence[Line]
) -> dict[str, Any]:
    return {
        "variant": asdict(variant),
        "published": published_row(),
        "batches": [_line(line) for line in batches],
        "continuous": [_line(line) for line in continuous],
        "causes": [_line(line) for line in causes],
    }


def _line(line: Line) -> dict[str, Any]:
    figures = line.figures
    return {
        "name": line.name,
        "in_flight": line.in_flight,
        "sequential_s": line.sequential.agent_s,
        "agent_s": figures.agent_s,
        "agent_p99_s": figures.agent_p99_s,
        "sequential_p99_s": line.sequential.agent_p99_s,
        "hidden_tool_time": line.hidden,
        "discarded_per_s": line.discarded_per_s,
        "rollouts_per_h": figures.rollouts_per_h,
        "match": figures.match,
        "decode_rate": figures.decode_rate,
        "sent_ahead": figures.sent,
        "refused": figures.refused,
    }
