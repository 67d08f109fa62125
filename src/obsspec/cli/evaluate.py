"""`obsspec evaluate`: how good the models are, apart from any timing."""

from __future__ import annotations

import json as json_module
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import Parameter
from rich.console import Console
from rich.progress import track
from rich.table import Table

from obsspec.cli.console import wide_console
from obsspec.compare.evaluate import Predicted, predict_all, quality
from obsspec.compare.parts import open_parts
from obsspec.compare.run import sequential_results
from obsspec.compare.settings import CompareSettings


def evaluate(
    *,
    settings: CompareSettings | None = None,
    json: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> int:
    """Measure the policy's reward and the world model's exact match on tasks of the test split.

    Rollouts are sequential; every observation is then predicted from the history it had, however long that takes.
    Use `--sandbox local`: no latency is needed. Depth and breadth have no effect here.
    """
    settings = settings or CompareSettings()
    console = wide_console()
    figures = anyio.run(partial(_run, settings, console))
    console.print(_table(figures))
    if json is not None:
        json.write_text(json_module.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


async def _run(settings: CompareSettings, console: Console) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as logs:
        async with open_parts(settings, console, Path(logs)) as opened:
            results = await sequential_results(settings, opened.parts)
            predicted: list[Predicted] = []
            for result in track(results, "predicting", console=console):
                predicted += await predict_all(result, opened.parts.renderer, opened.parts.world_model)
    return quality(results, predicted)


def _table(figures: dict[str, Any]) -> Table:
    table = Table(title="Quality of policy and world model on unseen tasks", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_row("tasks", str(figures["tasks"]))
    table.add_row("reward", f"{100 * figures['reward']:.1f} %")
    table.add_row("predicted observations", str(figures["predictions"]))
    for name, key in (
        ("match", "match"),
        ("match, non-empty outputs", "match_nonempty"),
        ('match of always guessing "no output"', "match_trivial"),
    ):
        table.add_row(name, f"{100 * figures[key]:.1f} %")
    for family, reward in figures["reward_per_family"].items():
        table.add_row(f"reward, {family}", f"{100 * reward:.1f} %")
    for command, (count, match) in figures["match_per_command"].items():
        table.add_row(f"match, {command}", f"{100 * match:.1f} % of {count}")
    return table
