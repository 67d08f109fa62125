"""`obsspec evaluate`: how good the models are, apart from any timing."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from obsspec.cli.console import check_json, progress_bar, wide_console, write_json
from obsspec.compare.evaluate import Predicted, predict_all, quality
from obsspec.compare.parts import open_parts
from obsspec.compare.run import Arm, sequential_results
from obsspec.compare.settings import CompareSettings
from obsspec.compare.table import label, percent
from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.store import RunFolder, json_text


def evaluate(
    *,
    settings: CompareSettings | None = None,
    rollouts: Annotated[
        Path | None,
        Parameter(help="Run folder for the rollouts: those in it are not made again, also for another world model."),
    ] = None,
    json: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> int:
    """Measure the policy's reward and the world model's exact match on tasks of the test split.

    Rollouts are sequential; every observation is then predicted from the history it had, however long that takes.
    Use `--sandbox local`: no latency is needed. Depth and breadth have no effect here.
    """
    settings = settings or CompareSettings()
    console = wide_console()
    check_json(json)
    figures = anyio.run(partial(_run, settings, rollouts, console))
    console.print(_rewards(figures))
    console.print(_matches(figures))
    write_json(json, json_text(figures))
    return 0


async def _run(settings: CompareSettings, rollouts: Path | None, console: Console) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as logs:
        folder = RunFolder(rollouts or Path(logs) / "rollouts", settings.acting_config())
        async with open_parts(settings, console, Path(logs)) as opened:
            with progress_bar(console) as progress:
                total = settings.tasks * settings.group
                acting = progress.add_task("rollouts", total=total)
                progress.update(acting, completed=min(total, sum(1 for _ in folder.results())))

                def finished(arm: Arm, result: RolloutResult) -> None:
                    progress.advance(acting)

                results = await sequential_results(settings, opened.parts, folder, finished)
                predicted: list[Predicted] = []
                for result in progress.track(results, description="predictions"):
                    predicted += await predict_all(result, opened.parts.renderer, opened.parts.language)
    return quality(results, predicted)


def _rewards(figures: dict[str, Any]) -> Table:
    table = Table(title="Reward of the policy on unseen tasks", title_justify="left")
    table.add_column("family")
    table.add_column("reward", justify="right")
    for family, reward in figures["reward_per_family"].items():
        table.add_row(family, percent(reward))
    table.add_row(f"all {figures['tasks']} tasks", percent(figures["reward"]), style="bold")
    return table


def _matches(figures: dict[str, Any]) -> Table:
    table = Table(title="Exact match of the world model", title_justify="left")
    table.add_column("command")
    for name in ("predictions", "match", "non-empty outputs", 'always guessing "no output"'):
        table.add_column(name, justify="right")
    for command, shares in figures["match_per_command"].items():
        table.add_row(label(command), *_row(shares))
    table.add_row("all", *_row(figures), style="bold")
    return table


def _row(shares: dict[str, Any]) -> list[str]:
    rates = (percent(shares[name]) for name in ("match", "match_nonempty", "match_trivial"))
    return [str(shares["predictions"]), *rates]
