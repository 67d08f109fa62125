"""`obsspec simulate`: the shipped session, gate and collector in virtual time, with modelled servers and tools."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape

from obsspec.cli.console import check_json, progress_bar, wide_console, write_json
from obsspec.rollout.store import json_text
from obsspec.sim.paper import REPLICAS, Effort, Paper
from obsspec.sim.paper_tables import TABLES
from obsspec.sim.plan import Assumed, Plan, Planned, PlanSettings, slower
from obsspec.sim.plan_table import plan_json, plan_tables
from obsspec.sim.recorded import read_run
from obsspec.sim.reference import Reference, Variant
from obsspec.sim.reference_table import holds, reference_json, reference_tables
from obsspec.sim.regime import ARMS, COARSE, Axes, Measured, measure
from obsspec.sim.regime_picture import draw
from obsspec.sim.regime_store import below, regime_tables, write
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
    names = _named("--tables", tables, TABLES)
    if batches < 1 or asynchronous < 1:
        raise ConfigError(f"--batches and --asynchronous must be at least 1, got {batches} and {asynchronous}")
    console = wide_console()
    results = _simulate_tables(names, Effort(batches, asynchronous, seed), console)
    console.print(paper_tables(results))
    write_json(json, json_text(paper_json(results)))
    return 0 if all_good(results) else 1


@app.command
def reference(
    *,
    match: Annotated[float, Parameter(help="How often the cascade is right.")] = 0.9,
    depth: Annotated[int, Parameter(help="D: predictions that may stand unverified in a chain.")] = 4,
    latency: Annotated[float, Parameter(help="Seconds that the cheap source takes.")] = 0.02,
    language: Annotated[
        float, Parameter(help="Share of the calls that only a language model on the policy's engine knows.")
    ] = 0.0,
    gate: Annotated[bool, Parameter(help="Weigh every start.")] = True,
    replicas: Annotated[int, Parameter(help="Of the policy, in both arms; turns keep their lengths.")] = REPLICAS,
    rollouts: Annotated[int, Parameter(help="Rollouts of each run of continuous collection.")] = 512,
    seed: Annotated[int, Parameter(help="Of the simulated rollouts.")] = 1,
    json: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> int:
    """The ObsSpec paper's workload with the cascade and guarded calls, on the devices of the sequential run.

    Shows what is hidden beside the published, and what the rest is lost to. Exit status 1 when the 99th percentile of
    agent latency is not below the sequential one, or more tokens are discarded for each second saved than published.
    """
    check_json(json)
    variant = Variant(match, depth, latency, gated=gate, language=language, replicas=replicas)
    console = wide_console()
    began_s = time.process_time()
    with progress_bar(console) as progress:
        bar = progress.add_task("simulating", total=None)
        simulation = Reference(variant, rollouts, seed, on_rollout=lambda: progress.advance(bar))
        batches, continuous = simulation.batches(), simulation.continuous()
        causes = list(simulation.causes(continuous[-1].in_flight))
    console.print(_pace(simulation.turns, time.process_time() - began_s), highlight=False)
    console.print(reference_tables(variant, batches, continuous, causes))
    write_json(json, json_text(reference_json(variant, batches, continuous, causes)))
    return 0 if holds([*batches[1:], *continuous[1:]]) else 1


@app.command
def regime(
    *,
    out: Annotated[Path, Parameter(help="Folder for regime.parquet and regime.png.")] = Path("runs/regime"),
    coarse: Annotated[bool, Parameter(help="A map of 16 points, in seconds instead of minutes.")] = False,
    arms: Annotated[str, Parameter(help=f"Comma-separated: {', '.join(ARMS)}; 'all' for every one.")] = "all",
    tool_s: Annotated[tuple[float, ...], Parameter(help="Mean tool latencies in seconds.")] = (),
    tokens: Annotated[tuple[float, ...], Parameter(help="Mean tokens of a turn.")] = (),
    match: Annotated[tuple[float, ...], Parameter(help="Shares of right predictions.")] = (),
    load: Annotated[tuple[int, ...], Parameter(help="Rollouts in flight on the one replica.")] = (),
) -> int:
    """Map where speculation pays, over tool latency, generation length, match and load, on equal hardware.

    Exit status 1 when a gated arm is anywhere below 0.99 of the sequential pipeline.
    """
    names = _named("--arms", arms, ARMS)
    console = wide_console()
    axes = COARSE if coarse else Axes()
    given = {"tool_s": tool_s, "tokens": tokens, "match": match, "load": load}
    axes = replace(axes, **{name: values for name, values in given.items() if values})
    measured: list[Measured] = []
    with progress_bar(console) as progress:
        bar = progress.add_task("points", total=len(axes.points()) * len(names))
        for each in measure(axes, {name: ARMS[name] for name in names}):
            measured.append(each)
            progress.advance(bar)
    write(measured, out / "regime.parquet")
    draw(axes, measured, out / "regime.png")
    console.print(regime_tables(measured))
    console.print(f"written to {escape(str(out))}: regime.parquet, regime.png", highlight=False)
    return 1 if below(measured) else 0


@app.command
def plan(
    run: Annotated[Path, Parameter(help="A run folder of `obsspec compare`.")],
    /,
    *,
    depth: Annotated[tuple[int, ...], Parameter(help="Depths D to try.")] = (1, 2, 4),
    breadth: Annotated[tuple[int, ...], Parameter(help="Breadths K to try; no more candidates than the run had.")] = (
        1,
    ),
    guarded: Annotated[bool | None, Parameter(help="Calls sent ahead, or not; neither: both.")] = None,
    concurrency: Annotated[int, Parameter(help="Rollouts in flight; 0: as in the run.")] = 0,
    tool_s: Annotated[float | None, Parameter(help="Scale the tools to this mean latency.")] = None,
    match: Annotated[float | None, Parameter(help="Also try a source that is right so often ...")] = None,
    latency: Annotated[float, Parameter(help="... after so many seconds.")] = 0.1,
    rollouts: Annotated[int, Parameter(help="Rollouts to draw from the run.")] = 128,
    seed: Annotated[int, Parameter(help="Of the draws.")] = 1,
    json: Annotated[Path | None, Parameter(help="Also write the figures to this file.")] = None,
) -> None:
    """From a recorded run, what to expect with which depth, breadth and sources, without and with calls sent ahead.

    Whole rollouts are drawn again from the run and simulated on an engine as fast as the recorded one. The first table
    says how well that meets what the run measured.
    """
    check_json(json)
    assumed = Assumed(match, latency) if match is not None else None
    ahead = (False, True) if guarded is None else (guarded,)
    settings = PlanSettings(depth, ahead, breadth, rollouts, concurrency, seed, assumed)
    recorded = read_run(run)
    planned = Plan(recorded if tool_s is None else slower(recorded, tool_s), settings)
    console = wide_console()
    lines: list[Planned] = []
    with progress_bar(console) as progress:
        total = len(planned.choices()) * len(ahead) * len(depth) * len(breadth)
        bar = progress.add_task("settings", total=total + 2)
        sequential = planned.sequential()
        own = planned.recorded()
        progress.advance(bar, 2)
        for line in planned.lines():
            lines.append(line)
            progress.advance(bar)
    console.print(plan_tables(planned, sequential, own, lines))
    write_json(json, json_text(plan_json(planned, sequential, own, lines)))


def _named(option: str, given: str, known: Collection[str]) -> list[str]:
    names = list(known) if given == "all" else [name.strip() for name in given.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"{option}: unknown {', '.join(unknown)}; known: {', '.join(known)}")
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
    console.print(f"{done:,} rollouts, {_pace(simulation.turns, time.process_time() - began_s)}", highlight=False)
    return results


def _pace(turns: int, seconds: float) -> str:
    return f"{turns:,} turns in {seconds:.0f} s of processor time ({1000 * seconds / max(1, turns):.2f} ms a turn)"
