"""The tables of a comparison, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table


def tables(summary: dict[str, Any]) -> Group:
    sources = _outcomes("Outcomes per source", "source", summary["per_source"])
    commands = _outcomes("Outcomes per command", "command", summary["per_command"])
    return Group(_main(summary), "", sources, "", commands)


def _main(s: dict[str, Any]) -> Table:
    """A column for each arm. The third one, observation speculation alone, is there if it was run."""
    alone = s.get("observation_only")
    arms = [s] if alone is None else [alone, s]
    table = Table(title="Sequential and speculative pipeline, paired", title_justify="left")
    for name in ("", "sequential", *(["observation only"] if alone is not None else []), "speculative"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("tasks", str(s["pairs"]), *(str(arm["pairs"]) for arm in arms))
    table.add_row("reward", percent(s["reward_sequential"]), *(percent(arm["reward_speculative"]) for arm in arms))
    table.add_row(
        "agent latency (95 % CI)",
        _seconds(s, "agent_s_sequential"),
        *(_seconds(arm, "agent_s_speculative") for arm in arms),
    )
    table.add_row("tool calls, tool time a rollout", _tools(s))
    table.add_row(
        "decode rate, tokens/s",
        _number(s["decode_rate_sequential"], 1),
        *(_number(arm["decode_rate_speculative"], 1) for arm in arms),
    )
    if any(arm["guarded_sent"] for arm in arms):
        table.add_row("calls sent ahead: ran / refused", "", *(_ahead(arm) for arm in arms))
    for name, shown in _ROWS.items():
        table.add_row(name, "", *(shown(arm) for arm in arms))
    table.add_row(
        "how rollouts ended", _stops(s["stops"]["sequential"]), *(_stops(arm["stops"]["speculative"]) for arm in arms)
    )
    table.add_row("identical rollouts", "", *(f"{arm['identical']}/{arm['pairs']}" for arm in arms))
    return table


def _reduction(s: dict[str, Any]) -> str:
    low, high = s["reduction_ci"]
    return f"{percent(s['reduction'])} [{percent(low)}, {percent(high)}]"


def _attempts(s: dict[str, Any]) -> str:
    outcomes = " / ".join((percent(s["match"]), percent(s["rollback"]), percent(s["cancel"])))
    return f"{outcomes} of {s['attempts']}"


def _untried(s: dict[str, Any]) -> str:
    return f"{s['gated']} / {s['failed']} ({s['cut_off']}) of {s['turns_with_a_call']} turns"


def _ahead(s: dict[str, Any]) -> str:
    return f"{s['guarded_ran']} / {s['guarded_refused']} of {s['guarded_sent']}" if s["guarded_sent"] else "-"


_ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "reduction (95 % CI)": _reduction,
    "hidden tool time; ideal": lambda s: f"{percent(s['hidden_tool_time'])}; {percent(s['hidden_ideal'])}",
    "match / rollback / cancel": _attempts,
    "gated / failed (too long)": _untried,
    "match, non-empty outputs": lambda s: percent(s["match_nonempty"]),
    'match of always guessing "no output"': lambda s: percent(s["match_trivial"]),
    "realized depth / breadth": lambda s: f"{_number(s['realized_depth'])} / {_number(s['realized_breadth'])}",
    "prediction latency p50": lambda s: _number(s["prediction_p50_s"], 4, " s"),
    "the same without the language model": lambda s: _number(s["prediction_p50_cheap_s"], 4, " s"),
    "turns with a right candidate in time": lambda s: f"{s['would_match']} of {s['turns_with_a_call']}",
    "discarded policy tokens a rollout": lambda s: _number(s["discarded_policy_tokens"], 1),
}


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
