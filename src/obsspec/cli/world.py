"""`obsspec world`: what world models know, measured on recorded trajectories."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape

from obsspec.cli.console import check_json, progress_bar, wide_console, write_json
from obsspec.rollout.store import json_text
from obsspec.values import ConfigError
from obsspec.worldeval.bench import Plan
from obsspec.worldeval.data import Data, open_data
from obsspec.worldeval.figures import load, summarize
from obsspec.worldeval.picture import draw
from obsspec.worldeval.plan import make_plan
from obsspec.worldeval.run import count_calls, evaluate
from obsspec.worldeval.settings import EvalSettings
from obsspec.worldeval.store import RowWriter, open_rows
from obsspec.worldeval.table import tables

ROWS = "rows.parquet"
app = App(name="world", help="Evaluate world models on recorded trajectories.")


@app.command(name="eval")
def evaluate_sources(
    data: Annotated[tuple[str, ...], Parameter(help="Files of recorded rows, run folders, directories, patterns.")],
    /,
    *,
    settings: EvalSettings | None = None,
    out: Annotated[Path, Parameter(help="Folder for rows.parquet, summary.json and picture.png.")] = Path(
        "runs/world-eval"
    ),
    json: Annotated[Path | None, Parameter(help="Also write summary.json to this file.")] = None,
) -> int:
    """Ask every source for every recorded observation, in order, and count what was exactly right.

    Each source is asked alone, and the cascade of them gives its first candidate. Three protocols: cold (nothing is
    remembered from one rollout to the next), group (within up to 16 rollouts of a task), epochs (always). Ctrl-C keeps
    what is done.
    """
    settings = settings or EvalSettings()
    check_json(json)
    console = wide_console()
    with open_data(data, settings.arm) as opened:
        try:
            anyio.run(partial(_evaluate, settings, opened, out, console))
            status = 0
        except KeyboardInterrupt:
            console.print("[bold]interrupted[/]: figures are of the calls that were done")
            status = 130
    summary = _report(out, settings.tool_seconds, console)
    write_json(json, json_text(summary))
    return status


@app.command
def report(
    folder: Annotated[Path, Parameter(help="What `obsspec world eval` wrote to.")],
    /,
    *,
    tool_seconds: Annotated[float | None, Parameter(help="As for `eval`.")] = None,
) -> None:
    """Compute the figures of an evaluation again, from its rows alone."""
    if not (folder / ROWS).is_file():
        raise ConfigError(f"{folder} holds no {ROWS}: give a folder that `obsspec world eval` wrote to")
    _report(folder, tool_seconds, wide_console())


async def _evaluate(settings: EvalSettings, data: list[Data], out: Path, console: Console) -> None:
    async with make_plan(settings, console) as plan:
        with open_rows(out / ROWS) as rows:
            await _run(data, plan, rows, console)


async def _run(data: list[Data], plan: Plan, rows: RowWriter, console: Console) -> None:
    with progress_bar(console) as progress:
        bar = progress.add_task("calls", total=count_calls(data, plan))
        await evaluate(data, plan, rows, lambda: progress.advance(bar))


def _report(out: Path, tool_seconds: float | None, console: Console) -> dict[str, Any]:
    rows = load(out / ROWS)
    summary = summarize(rows, tool_seconds)
    write_json(out / "summary.json", json_text(summary))
    console.print(tables(summary))
    console.print(f"written to {escape(str(out))}: {ROWS}, summary.json, picture.png", highlight=False)
    draw(rows, summary, out / "picture.png")
    return summary
