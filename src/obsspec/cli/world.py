"""`obsspec world`: what world models know, measured on recorded trajectories."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape

from obsspec.cli.console import check_json, progress_bar, wide_console, write_json
from obsspec.rollout.store import json_text
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.profile import PROFILES, parse_profile
from obsspec.values import ConfigError
from obsspec.worldeval.bench import Plan
from obsspec.worldeval.data import Data, open_data
from obsspec.worldeval.figures import load, summarize
from obsspec.worldeval.picture import draw
from obsspec.worldeval.plan import make_plan
from obsspec.worldeval.probing import probe_all, trajectories, write_ceiling
from obsspec.worldeval.probing import summarize as summarize_probe
from obsspec.worldeval.run import count_calls, evaluate
from obsspec.worldeval.settings import EvalSettings
from obsspec.worldeval.store import RowWriter, open_rows
from obsspec.worldeval.table import probe_tables, tables

ROWS = "rows.parquet"
app = App(name="world", help="Evaluate world models on recorded trajectories; probe what is deterministic.")


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
    with _end_as_if_interrupted(), open_data(data, settings.arm) as opened:
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
def probe(
    targets: Annotated[tuple[str, ...], Parameter(help="Run folders, or tasks of the suite such as files-easy-9.")],
    /,
    *,
    arm: Annotated[str, Parameter(help="Which rollouts of a run folder.")] = "sequential",
    determinism: Annotated[str, Parameter(help=f"Determinism profile: {', '.join(PROFILES)}.")] = "standard",
    times: Annotated[int, Parameter(help="How often each trajectory is run.")] = 2,
    concurrency: Annotated[int, Parameter(help="Trajectories at a time.")] = 2,
    json: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> None:
    """Run trajectories again, each time in a fresh sandbox, and say what is not deterministic and why.

    Of a task, its reference solution. The share of commands that print the same each time is the most that a world
    model can reach; a probed run folder keeps it (probe.json), and `eval` shows it.
    """
    if times < 2 or concurrency < 1:
        raise ConfigError(f"--times must be at least 2 and --concurrency 1, got {times} and {concurrency}")
    check_json(json)
    console = wide_console()
    sandboxes = LocalSandboxes(profile=parse_profile(determinism))
    figures: dict[str, Any] = {}
    for target in targets:
        found = list(trajectories(target, arm))
        with progress_bar(console) as progress:
            bar = progress.add_task(escape(target), total=len(found))
            advance = partial(progress.advance, bar)
            probed = anyio.run(probe_all, found, sandboxes, times, concurrency, advance)
        figures[target] = summarize_probe(probed)
        if Path(target).is_dir():
            write_ceiling(Path(target), probed, {"determinism": determinism, "arm": arm, "times": times})
    console.print(probe_tables(figures))
    write_json(json, json_text(figures))


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


@contextmanager
def _end_as_if_interrupted() -> Generator[None, None, None]:
    """SIGTERM, as `timeout` and batch systems send it, keeps what is done, too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a shell's background jobs start like that
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


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
