"""The tables of a comparison, for a terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table


def tables(summary: dict[str, Any]) -> Group:
    sources = _outcomes("Outcomes per source", "source", summary["per_source"])
    commands = _outcomes("Outcomes per command", "command", summary["per_command"])
    return Group(_main(summary), "", sources, "", commands)


def _main(s: dict[str, Any]) -> Table:
    table = Table(title="Sequential and speculative pipeline, paired", title_justify="left")
    table.add_column("")
    table.add_column("sequential", justify="right")
    table.add_column("speculative", justify="right")
    table.add_row("tasks", str(s["pairs"]), str(s["pairs"]))
    table.add_row("reward", percent(s["reward_sequential"]), percent(s["reward_speculative"]))
    table.add_row("agent latency (95 % CI)", _seconds(s, "agent_s_sequential"), _seconds(s, "agent_s_speculative"))
    low, high = s["reduction_ci"]
    table.add_row("reduction (95 % CI)", "", f"{percent(s['reduction'])} [{percent(low)}, {percent(high)}]")
    table.add_row("hidden tool time", "", percent(s["hidden_tool_time"]))
    table.add_row("tool calls, tool time a rollout", _tools(s), "")
    outcomes = " / ".join((percent(s["match"]), percent(s["rollback"]), percent(s["cancel"])))
    table.add_row("match / rollback / cancel", "", f"{outcomes} of {s['attempts']}")
    table.add_row(
        "gated / failed (too long)",
        "",
        f"{s['gated']} / {s['failed']} ({s['cut_off']}) of {s['turns_with_a_call']} turns",
    )
    table.add_row("match, non-empty outputs", "", percent(s["match_nonempty"]))
    table.add_row('match of always guessing "no output"', "", percent(s["match_trivial"]))
    table.add_row("realized depth / breadth", "", f"{_number(s['realized_depth'])} / {_number(s['realized_breadth'])}")
    table.add_row(
        "decode rate, tokens/s", _number(s["decode_rate_sequential"], 1), _number(s["decode_rate_speculative"], 1)
    )
    table.add_row("prediction latency p50", "", _number(s["prediction_p50_s"], 3, " s"))
    table.add_row("the same without the language model", "", _number(s["prediction_p50_cheap_s"], 4, " s"))
    table.add_row("turns with a right candidate in time", "", f"{s['would_match']} of {s['turns_with_a_call']}")
    table.add_row("discarded policy tokens a rollout", "0", _number(s["discarded_policy_tokens"], 1))
    if s["guarded_sent"]:
        ran = f"{s['guarded_ran']} / {s['guarded_refused']} of {s['guarded_sent']}"
        table.add_row("calls sent ahead: ran / refused", "", ran)
    table.add_row("how rollouts ended", _stops(s["stops"]["sequential"]), _stops(s["stops"]["speculative"]))
    table.add_row("identical rollouts", "", f"{s['identical']}/{s['pairs']}")
    return table


def _outcomes(title: str, first: str, rows: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in ("count", "tool s", "wm s", "match", "rollback", "cancel", "gated", "failed", "non-empty", "trivial"):
        table.add_column(name, justify="right")
    for name, shares in rows.items():
        table.add_row(
            label(name),
            str(shares["turns"]),
            _number(shares["tool_s"], 3),
            _number(shares["prediction_s"], 3),
            percent(shares["match"]),
            percent(shares["rollback"]),
            percent(shares["cancel"]),
            str(shares["gated"]),
            str(shares["failed"]),
            percent(shares["match_nonempty"]),
            percent(shares["match_trivial"]),
        )
    return table


def label(text: str, most: int = 32) -> str:
    """What a policy wrote, as a table shows it: no markup, no control characters, not too long."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return escape(shown if len(shown) <= most else f"{shown[: most - 3]}...")


def _stops(stops: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in stops.items())


def _tools(s: dict[str, Any]) -> str:
    return f"{_number(s['tool_calls_per_rollout'], 1)}, {_number(s['tool_s_per_rollout'], 1)} s"


def _seconds(s: dict[str, Any], name: str) -> str:
    low, high = s[f"{name}_ci"]
    return f"{_number(s[name])} s [{_number(low)}, {_number(high)}]"


def percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f} %"


def _number(value: float, digits: int = 2, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}{unit}"
