"""The picture of the map of regimes."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (matplotlib is only partly typed)
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes as Panel
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from obsspec.sim.regime import Axes, Measured, Point
from obsspec.values import ConfigError

MOST = 70.0  # % of reduction at which colours end
DARK = 45.0  # from which on black is not seen on them


def draw(axes: Axes, measured: Sequence[Measured], target: Path) -> None:
    """Write the PNG: a panel for each arm, turn length and load. Raises `ConfigError`."""
    arms = list(dict.fromkeys(each.arm for each in measured))
    found = {(each.arm, each.point): each for each in measured}
    lines = [(arm, tokens) for arm in arms for tokens in axes.tokens]
    figure = Figure(figsize=(3.6 * len(axes.load) + 1.5, 2.1 * len(lines) + 1.2), layout="constrained")
    grid = figure.subplots(len(lines), len(axes.load), squeeze=False)
    image: AxesImage | None = None
    for line, (arm, tokens) in zip(grid, lines, strict=True):
        for panel, load in zip(line, axes.load, strict=True):
            image = _panel(panel, axes, found, arm, tokens, load)
            panel.set_title(f"{arm}: {tokens:g} tokens a turn, {load} in flight", fontsize=8)
    if image is not None:
        figure.colorbar(image, ax=grid, shrink=0.5, label="reduction of agent latency, %")
    figure.suptitle("Reduction of agent latency (and hidden tool time), %. Simulated; every arm on the same hardware.")
    try:
        figure.savefig(target, dpi=110)
    except OSError as error:
        raise ConfigError(f"can not write {target}: {error.strerror or error}") from error


def _panel(
    panel: Panel, axes: Axes, found: dict[tuple[str, Point], Measured], arm: str, tokens: float, load: int
) -> AxesImage:
    values = np.full((len(axes.match), len(axes.tool_s)), np.nan)
    for i, match in enumerate(axes.match):
        for j, tool_s in enumerate(axes.tool_s):
            each = found.get((arm, Point(tool_s, tokens, match, load)))
            if each is None:
                continue
            values[i, j] = 100 * each.figures.reduction(each.sequential)[0]
            text = f"{values[i, j]:.0f}\n({100 * each.figures.hidden(each.sequential):.0f})"
            colour = "white" if abs(values[i, j]) > DARK else "black"
            panel.text(j, i, text, ha="center", va="center", fontsize=6.5, color=colour)
    image = panel.imshow(values, cmap="RdYlGn", vmin=-MOST, vmax=MOST, origin="lower", aspect="auto")
    panel.set_xticks(range(len(axes.tool_s)), [f"{s:g}" for s in axes.tool_s], fontsize=7)
    panel.set_yticks(range(len(axes.match)), [f"{m:g}" for m in axes.match], fontsize=7)
    panel.set_xlabel("tool latency, s", fontsize=7)
    panel.set_ylabel("match", fontsize=7)
    return image
