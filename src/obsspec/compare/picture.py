"""The picture of a comparison: latencies of all arms, outcomes per command, and one rollout's timeline."""

# pyright: reportUnknownMemberType=false
# (matplotlib is only partly typed)
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from obsspec.compare.summary import Pair, observation_pairs
from obsspec.rollout.collector import RolloutResult
from obsspec.speculation.trace import Fate, Span, SpanKind
from obsspec.values import ConfigError

GENERATE, TOOL, PREDICT, WASTE = "#3b6fb6", "#c9c9c9", "#e0a030", "#c8553d"
OUTCOMES = {"match": "#4c9a5b", "rollback": WASTE, "cancel": "#9a9a9a"}


def draw(pairs: Sequence[Pair], summary: dict[str, Any], target: Path) -> None:
    """Write the PNG. With no pair there is nothing to draw, and nothing is written. Raises `ConfigError`."""
    if not pairs:
        return
    figure = Figure(figsize=(13, 9), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.15))
    _latencies(figure.add_subplot(grid[0, 0]), pairs, summary)
    _outcomes(figure.add_subplot(grid[0, 1]), summary)
    _timeline(figure.add_subplot(grid[1, :]), _telling(pairs))
    try:
        figure.savefig(target, dpi=110)
    except OSError as error:
        raise ConfigError(f"can not write {target}: {error.strerror or error}") from error


def _latencies(axes: Axes, pairs: Sequence[Pair], summary: dict[str, Any]) -> None:
    alone = observation_pairs(pairs)
    arms = {"observation only": (alone, PREDICT)} if alone else {}
    arms["speculative" if alone else "one task"] = (list(pairs), GENERATE)
    top = 1.08 * max(arm.trajectory.agent_s for p in (*pairs, *alone) for arm in (p.sequential, p.speculative)) or 1.0
    axes.plot((0, top), (0, top), color="#888888", linewidth=1, label="equal")
    for label, (of_arm, color) in arms.items():
        x = [pair.sequential.trajectory.agent_s for pair in of_arm]
        y = [pair.speculative.trajectory.agent_s for pair in of_arm]
        axes.scatter(x, y, color=color, alpha=0.75, label=label)
    axes.set(xlim=(0, top), ylim=(0, top), xlabel="sequential agent latency (s)", ylabel="speculative (s)")
    low, high = summary["reduction_ci"]
    axes.set_title(
        f"agent latency {summary['agent_s_sequential']:.1f} s -> {summary['agent_s_speculative']:.1f} s: "
        f"reduction {100 * summary['reduction']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]",
        fontsize=10,
    )
    axes.legend(loc="upper left", frameon=False)


def _outcomes(axes: Axes, summary: dict[str, Any], most: int = 18) -> None:
    per_command = summary["per_command"]
    names = [name for name in per_command if per_command[name]["attempts"]][:most][::-1]
    left = [0.0] * len(names)
    for outcome, color in OUTCOMES.items():
        widths = [100 * per_command[name][outcome] for name in names]
        axes.barh(range(len(names)), widths, left=left, color=color, label=outcome)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    labels = [f"{plain(name)} ({per_command[name]['attempts']})" for name in names]
    axes.set_yticks(range(len(names)), labels, parse_math=False)
    axes.set(xlim=(0, 100), xlabel="% of attempts")
    match, telling, trivial = (100 * summary[name] for name in ("match", "match_nonempty", "match_trivial"))
    axes.set_title(
        f"predictions per command (attempts): match {match:.1f} %\n"
        f'non-empty outputs {telling:.1f} %, always guessing "no output" {trivial:.1f} %',
        fontsize=10,
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=3, frameon=False, fontsize=8)


def plain(text: str, most: int = 24) -> str:
    """What a policy wrote, as a label: every character is one that the font has, and there are not too many."""
    shown = "".join(c if c.isascii() and c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def _telling(pairs: Sequence[Pair]) -> Pair:
    """The pair of median saving among those with a few tool calls: typical, and long enough to see."""
    ordered = sorted(pairs, key=lambda p: p.sequential.trajectory.agent_s - p.speculative.trajectory.agent_s)
    long = [pair for pair in ordered if len(pair.sequential.trajectory.turns) >= 4] or ordered
    return long[len(long) // 2]


def _timeline(axes: Axes, pair: Pair) -> None:
    lanes = ["predictions", "early generations", "speculative: the loop"]
    if pair.observation is not None:
        _loop_lane(axes, pair.observation, 3.0)
        lanes.append("observation only")
    _loop_lane(axes, pair.sequential, float(len(lanes)))
    lanes.append("sequential")
    _loop_lane(axes, pair.speculative, 2.0)
    if pair.speculative.speculation is not None:
        start = pair.speculative.trajectory.start_s
        for span in pair.speculative.speculation.spans:
            _speculation_bar(axes, span, start)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set(xlabel="seconds since the turn loop began", ylim=(-0.6, len(lanes) - 0.4))
    axes.set_title(f"one rollout in all arms: {plain(pair.sequential.task_id, 60)}", fontsize=10, parse_math=False)
    for color, label in (
        (GENERATE, "policy generates (kept)"),
        (TOOL, "tool runs"),
        (PREDICT, "world model predicts"),
        (WASTE, "discarded"),
    ):
        axes.barh(0, 0, color=color, label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=4, frameon=False, fontsize=8)


def _loop_lane(axes: Axes, result: RolloutResult, y: float) -> None:
    start = result.trajectory.start_s
    for turn in result.trajectory.turns:
        _bar(axes, turn.generate_start_s - start, turn.generate_end_s - start, y, GENERATE)
        for begin, end in zip(turn.tool_start_s, turn.tool_end_s, strict=True):
            _bar(axes, begin - start, end - start, y, TOOL)
    axes.plot([result.trajectory.agent_s] * 2, (y - 0.45, y + 0.45), color="black", linewidth=1.5)


def _speculation_bar(axes: Axes, span: Span, start: float) -> None:
    if not span.speculative or span.end_s is None:
        return
    kept = span.fate is Fate.KEPT
    match span.kind:
        case SpanKind.PREDICT:
            y, color = 0.0, PREDICT
        case SpanKind.GENERATE:
            y, color = 1.0, GENERATE
        case SpanKind.EXECUTE:
            return  # calls that were sent ahead overlap
    _bar(axes, span.start_s - start, span.end_s - start, y, color if kept else WASTE)


def _bar(axes: Axes, begin: float, end: float, y: float, color: str) -> None:
    axes.barh(y, end - begin, left=begin, height=0.6, color=color, edgecolor="white", linewidth=0.5)
