"""`obsspec simulate`: the shipped session, gate and collector in virtual time, with modelled servers and tools."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from obsspec.cli.console import check_json, progress_bar, wide_console, write_json
from obsspec.rollout.store import json_text
from obsspec.sim.paper import Effort, Paper
from obsspec.sim.paper_tables import TABLES
from obsspec.sim.report import all_good, paper_json, paper_tables
from obsspec.sim.results import Result
from obsspec.values import ConfigError

app = App(name="simulate", help="What speculation gives on other hardware, tools and loads, in virtual time.")


@app.command
def paper(
    *,
    tables: Annotated[str, Parameter(help=f"Comma-separated: {', '.join(TABLES)}; 'all' for every one.")] = "all",
    batches: Annotated[int, Parameter(help="Batches of 256 rollouts for each row.")] = 2,
    asynchronous: Annotated[int, Parameter(help="Rollouts for each row of throughput.")] = 1024,
    seed: Annotated[int, Parameter(help="Of the simulated rollouts.")] = 1,
    json: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> int:
    """Simulate every table of the ObsSpec paper and show the figures beside the published ones.

    Exit status 1 when a latency is off by more than its bound (sequential 1 %, speculative 3 %, K > 1 6 %) or rows
    stand in another order than published.
    """
    check_json(json)
    names = _named(tables)
    if batches < 1 or asynchronous < 1:
        raise ConfigError(f"--batches and --asynchronous must be at least 1, got {batches} and {asynchronous}")
    console = wide_console()
    results = _simulate_tables(names, Effort(batches, asynchronous, seed), console)
    console.print(paper_tables(results))
    write_json(json, json_text(paper_json(results)))
    return 0 if all_good(results) else 1


def _named(tables: str) -> list[str]:
    names = list(TABLES) if tables == "all" else [name.strip() for name in tables.split(",")]
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise ConfigError(f"--tables: unknown {', '.join(unknown)}; known: {', '.join(TABLES)}")
    return names


def _simulate_tables(names: list[str], effort: Effort, console: Console) -> list[Result]:
    began_s = time.process_time()
    results: list[Result] = []
    with progress_bar(console) as progress:
        bar = progress.add_task("tables", total=len(names))
        simulation = Paper(effort)
        done = 0

        def finished() -> None:
            nonlocal done
            done += 1
            if done % 64 == 0:
                progress.update(bar, description=f"tables, {done:,} rollouts")

        simulation.on_rollout = finished
        for name in names:
            results += TABLES[name](simulation)
            progress.advance(bar)
    seconds = time.process_time() - began_s
    console.print(
        f"{done:,} rollouts, {simulation.turns:,} turns in {seconds:.0f} s of processor time "
        f"({1000 * seconds / max(1, simulation.turns):.2f} ms a turn)",
        highlight=False,
    )
    return results
