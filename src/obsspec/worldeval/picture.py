"""The picture of an evaluation: shares and precision, commands, latencies."""

# pyright: reportUnknownMemberType=false
# (matplotlib is only partly typed)
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from obsspec.compare.picture import plain
from obsspec.values import ConfigError
from obsspec.worldeval.figures import Rows

COLORS = {"cold": "#8fb3d9", "group": "#3b6fb6", "epochs": "#1c3a66"}
RIGHT, WRONG, CEILING = "#4c9a5b", "#c8553d", "#444444"
COMMANDS = 12


def draw(rows: Rows, summary: dict[str, Any], target: Path) -> None:
    """Write the PNG, one line of panels for each data set. Nothing to draw: nothing written. Raises `ConfigError`."""
    if not summary:
        return
    figure = Figure(figsize=(18, 1 + 4.6 * len(summary)), layout="constrained")
    grid = figure.subplots(len(summary), 4, squeeze=False, width_ratios=(1.2, 1, 1.2, 1))
    for line, (name, data) in zip(grid, summary.items(), strict=True):
        _bars(line[0], data, "exact", f"{plain(name, 40)}: exact, of all calls")
        _bars(line[1], data, "precision", "precision where it speaks")
        _commands(line[2], data)
        _latencies(line[3], rows.only("data", name))
    try:
        figure.savefig(target, dpi=100)
    except OSError as error:
        raise ConfigError(f"can not write {target}: {error.strerror or error}") from error


def _bars(axes: Axes, data: dict[str, Any], what: str, title: str) -> None:
    protocols = data["protocols"]
    sources = list(dict.fromkeys(source for part in protocols.values() for source in part["sources"]))
    height = 0.8 / len(protocols)
    for number, (protocol, part) in enumerate(protocols.items()):
        found = [part["sources"].get(source) for source in sources]
        values = np.array([np.nan if f is None else 100 * f[what] for f in found])
        bounds = np.array([(np.nan, np.nan) if f is None else f[f"{what}_ci"] for f in found], dtype=np.float64)
        errors = np.nan_to_num(np.abs(100 * bounds.T - values))
        places = np.arange(len(sources)) + (number - (len(protocols) - 1) / 2) * height
        axes.barh(
            places, values, height, xerr=errors, color=COLORS[protocol], label=protocol, error_kw={"elinewidth": 0.7}
        )
    for name, style in (("ceiling_replay", "--"), ("ceiling_repeat", ":")):
        ceiling = data.get(name, list(protocols.values())[-1].get(name, np.nan))
        if what == "exact" and not np.isnan(ceiling):
            axes.axvline(
                100 * ceiling, color=CEILING, linestyle=style, linewidth=1, label=name.replace("_", ": same on ")
            )
    axes.set_yticks(range(len(sources)), [plain(source, 30) for source in sources])
    axes.invert_yaxis()
    axes.set(xlim=(0, 101), xlabel="%")
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncol=3, frameon=False)


def _commands(axes: Axes, data: dict[str, Any]) -> None:
    """The cascade on the most frequent commands: how many of all calls they are, and what became of them."""
    last, part = list(data["protocols"].items())[-1]
    commands = list(part["commands"].items())[:COMMANDS]
    total = max(1, sum(f["calls"] for f in part["commands"].values()))
    weights = [100 * f["calls"] / total for _, f in commands]
    right = [w * f["exact"] for w, (_, f) in zip(weights, commands, strict=True)]
    spoke = [w * f["spoke"] for w, (_, f) in zip(weights, commands, strict=True)]
    _stack(axes, weights, "#d9d9d9", "silent")
    _stack(axes, spoke, WRONG, "wrong")
    _stack(axes, right, RIGHT, "exact")
    axes.set_yticks(range(len(commands)), [plain(name, 20) for name, _ in commands])
    axes.invert_yaxis()
    axes.set(xlabel="% of all calls")
    axes.set_title(f"the cascade by command, {last}", fontsize=10)
    if commands:
        axes.legend(fontsize=7, loc="lower right")


def _stack(axes: Axes, values: Sequence[float], color: str, name: str) -> None:
    axes.barh(range(len(values)), values, 0.7, color=color, label=name)


def _latencies(axes: Axes, rows: Rows) -> None:
    for source, part in rows.split("source").items():
        if source.startswith(("baseline", "cascade -")):
            continue
        values = np.sort(np.maximum(1000 * part["latency_s"], 1e-3))
        style = {"linewidth": 2.2, "color": "black"} if source == "cascade" else {"linewidth": 1.1}
        axes.plot(values, np.linspace(0, 100, len(values)), label=plain(source, 30), **style)  # pyright: ignore[reportArgumentType]
    axes.set(xscale="log", xlabel="ms to the first candidate, or to silence", ylabel="% of calls", ylim=(0, 100))
    axes.set_title("latency, all protocols", fontsize=10)
    if axes.lines:
        axes.legend(fontsize=7, loc="lower right")
