"""Rollouts per hour: asynchronous against synchronous collection, each sequential and speculative.

    python benchmarks/async_collection.py measure --tasks 24 --out runs/async-collection
    python benchmarks/async_collection.py simulate --out runs/async-collection

Synchronous: a batch of rollouts starts together, and the next when the last of them is verified, as a trainer that
waits for its batch has it. Asynchronous: as many in flight, continuously. All four arms make the same rollouts with the
same engine, sandboxes and latency; `sandboxes` is the same cap for all.

`measure`: the embedded engine, real sandboxes behind a server with injected latency. Asynchronous arms pay for their
ramp-down: the last rollouts run beside empty slots. `simulate`: the shipped collectors in virtual time with the
published workload; throughput of asynchronous arms is taken between the first rollouts in flight and the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from obsspec.compare.parts import open_parts
from obsspec.compare.run import Parts
from obsspec.compare.settings import CompareSettings
from obsspec.compare.statistics import Estimate, reduction_estimate
from obsspec.protocols import Policy
from obsspec.rollout.accounting import Account
from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import json_text
from obsspec.sim import ids
from obsspec.sim.paper import default_skills, policy_server, terminal
from obsspec.sim.run import UNLIMITED
from obsspec.sim.sources import StatedSource
from obsspec.sim.workload import draw_workload
from obsspec.sim.world import SimEnvironment, SimRenderer, World
from obsspec.speculation.session import SpeculationSettings
from obsspec.tasks.environment import TaskEnvironment
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split, Task
from obsspec.testing.virtual_clock import Backend, run_virtual
from obsspec.train.account_table import account_table

app = App(name="async-collection", help=__doc__)
ARMS = [(asynchronous, speculative) for asynchronous in (False, True) for speculative in (False, True)]
BASE = (False, False)
GOAL = 1.4  # asynchronous speculative over synchronous sequential

See = Callable[[RolloutResult], None]


@dataclass(frozen=True, slots=True)
class Flight:
    """What all arms have in common."""

    in_flight: int
    sandboxes: int


@dataclass(slots=True)
class Measured:
    """One arm: what each round took, when each rollout had been verified, in order, and those of a real engine."""

    rounds_s: list[float] = field(default_factory=list[float])
    ended_s: list[float] = field(default_factory=list[float])
    agent_s: list[float] = field(default_factory=list[float])
    results: dict[str, RolloutResult] = field(default_factory=dict[str, RolloutResult])

    def saw(self, result: RolloutResult) -> None:
        self.ended_s.append(anyio.current_time())
        self.agent_s.append(result.trajectory.agent_s)

    def per_h(self, ramp: int = 0) -> float:
        """Rollouts per hour; with a `ramp`, without the first and the last so many."""
        if not ramp:
            return 3600 * len(self.ended_s) / sum(self.rounds_s)
        counted = self.ended_s[ramp : len(self.ended_s) - ramp]
        return 3600 * len(counted) / (counted[-1] - self.ended_s[ramp - 1])


async def collect(
    asynchronous: bool, flight: Flight, policy: Policy, speculation: Speculation | None, jobs: Sequence[Job], see: See
) -> Account | None:
    if asynchronous:
        return await _continuously(flight, policy, speculation, jobs, see)

    async def on_result(result: RolloutResult) -> None:
        _check(result)
        see(result)

    collector = Collector(policy, flight.in_flight, speculation)
    for begin in range(0, len(jobs), flight.in_flight):
        await collector.run(jobs[begin : begin + flight.in_flight], on_result)
    return None


async def _continuously(
    flight: Flight, policy: Policy, speculation: Speculation | None, jobs: Sequence[Job], see: See
) -> Account:
    settings = {"speculation": speculation, "whole_groups": False, "buffer": flight.in_flight}
    collector = AsyncCollector(policy, flight.in_flight, flight.sandboxes, **settings)
    async with collector.collect([job] for job in jobs) as collection:
        async for (attempt,) in collection:
            _check(attempt.result)
            see(attempt.result)
    return collection.account


def _check(result: RolloutResult) -> None:
    if result.trajectory.stop.is_error:
        raise AssertionError(f"rollout {result.seed}: {result.trajectory.stop} ({result.trajectory.error})")


def name_of(arm: tuple[bool, bool]) -> str:
    asynchronous, speculative = arm
    return f"{'asynchronous' if asynchronous else 'synchronous'} {'speculative' if speculative else 'sequential'}"


# Real ----------------------------------------------------------------------------------------------------------------


def real_jobs(tasks: Sequence[Task], settings: CompareSettings, parts: Parts) -> list[Job]:
    return [
        Job(
            TaskEnvironment(task, parts.sandboxes),
            RolloutRules(
                parts.renderer,
                Limits(min(settings.max_turns, task.max_turns), settings.max_turn_tokens, settings.max_context),
                seed=f"{settings.seed}/{task.id}",
            ),
        )
        for task in tasks
    ]


async def measure_arm(
    arm: tuple[bool, bool], flight: Flight, settings: CompareSettings, out: Path, console: Console, measured: Measured
) -> None:
    """With an engine, a memory and a gate of its own: no arm profits from another."""
    folder = out / name_of(arm).replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.sqlite").unlink(missing_ok=True)
    tasks = suite(Split.TEST, settings.tasks, settings.family_names, settings.difficulty, settings.task_seed)
    async with open_parts(settings, console, folder) as opened:
        parts = opened.parts
        await parts.start_cold()

        def see(result: RolloutResult) -> None:
            measured.saw(result)
            measured.results[result.seed] = result

        speculation = parts.world.speculation if arm[1] else None
        began_s = anyio.current_time()
        account = await collect(arm[0], flight, parts.policy, speculation, real_jobs(tasks, settings, parts), see)
        seconds = anyio.current_time() - began_s
    measured.rounds_s.append(seconds)
    if account is not None:
        console.print(account_table(account))
    console.print(f"{name_of(arm)}: {len(tasks)} rollouts in {seconds:.1f} s", highlight=False)


@app.command
def measure(
    *,
    tasks: Annotated[int, Parameter(help="Rollouts of each arm in a round.")] = 16,
    rounds: Annotated[int, Parameter(help="Rounds of other tasks; the order of the arms turns round.")] = 2,
    in_flight: Annotated[int, Parameter(help="Rollouts in flight.")] = 4,
    sandboxes: Annotated[int, Parameter(help="Sandboxes that may be open; more than in flight.")] = 6,
    latency: Annotated[str, Parameter(help="Transport latency of a tool call, seconds.")] = "1.0",
    seed: Annotated[int, Parameter(help="Which tasks.")] = 0,
    out: Annotated[Path, Parameter(help="Folder of the figures.")] = Path("runs/async-collection"),
) -> None:
    """The embedded engine and real sandboxes."""
    console = Console()
    flight = Flight(in_flight, sandboxes)
    arms = {arm: Measured() for arm in ARMS}
    for number in range(rounds):
        settings = CompareSettings(tasks=tasks, concurrency=in_flight, latency=latency, task_seed=seed + number)
        for arm in ARMS if number % 2 == 0 else reversed(ARMS):
            anyio.run(measure_arm, arm, flight, settings, out, console, arms[arm])
    base = arms[BASE].results
    same = {
        arm: sum(not differences(base[name], result) for name, result in measured.results.items())
        for arm, measured in arms.items()
    }
    report("measured", arms, {arm: measured.per_h() for arm, measured in arms.items()}, out, console, same)


# Simulated -----------------------------------------------------------------------------------------------------------


async def simulate_arm(arm: tuple[bool, bool], flight: Flight, world: World, model: str, outside_s: float) -> Measured:
    renderer = SimRenderer(world)
    jobs = [
        Job(SimEnvironment(world, number, outside_s / 2), RolloutRules(renderer, UNLIMITED, f"sim/{number}"))
        for number in range(world.workload.rollouts)
    ]
    policy = policy_server(model, world)
    models = Shared(StatedSource("lm", world, default_skills()))
    measured, began_s = Measured(), anyio.current_time()

    def see(result: RolloutResult) -> None:
        measured.saw(result)
        policy.forget(ids.make(ids.Mark.START, int(result.task_id)))

    speculation = Speculation(models, SpeculationSettings(1, 1)) if arm[1] else None
    await collect(arm[0], flight, policy, speculation, jobs, see)
    measured.rounds_s.append(anyio.current_time() - began_s)
    return measured


@app.command
def simulate(
    *,
    rollouts: Annotated[int, Parameter(help="Rollouts of each arm.")] = 1024,
    in_flight: Annotated[int, Parameter(help="Rollouts in flight.")] = 256,
    sandboxes: Annotated[int, Parameter(help="Sandboxes that may be open.")] = 256,
    tool_s: Annotated[float, Parameter(help="Mean tool latency, seconds.")] = 1.69,
    outside_s: Annotated[float, Parameter(help="Set-up and verifier together, seconds.")] = 25.0,
    model: Annotated[str, Parameter(help="Policy of the published workload: 8B or 32B.")] = "8B",
    seed: Annotated[int, Parameter(help="Of the workload.")] = 1,
    out: Annotated[Path, Parameter(help="Folder of the figures.")] = Path("runs/async-collection"),
) -> None:
    """The published workload in virtual time, one prediction at a time (D = K = 1), on hardware of its own."""
    console = Console()
    world = World(draw_workload(terminal(tool_s), rollouts, seed))
    flight = Flight(in_flight, sandboxes)
    arms: dict[tuple[bool, bool], Measured] = {}
    for arm in ARMS:
        began = perf_counter()
        run = partial(simulate_arm, arm, flight, world, model, outside_s)
        arms[arm] = run_virtual(run, backend=Backend.ASYNCIO)
        console.print(f"{name_of(arm)}: simulated in {perf_counter() - began:.0f} s", highlight=False)
    ramp = min(in_flight, rollouts // 3)
    rates = {arm: measured.per_h(ramp if arm[0] else 0) for arm, measured in arms.items()}
    report("simulated", arms, rates, out, console)


# Results -------------------------------------------------------------------------------------------------------------


def gain_over(base: Measured, measured: Measured) -> Estimate:
    """Of rollouts per hour; rounds of the same rollouts are pairs."""
    saved = reduction_estimate(base.rounds_s, measured.rounds_s)
    return Estimate(*(1 / (1 - share) - 1 for share in (saved.value, saved.low, saved.high)))


def report(
    kind: str,
    arms: dict[tuple[bool, bool], Measured],
    rates: dict[tuple[bool, bool], float],
    out: Path,
    console: Console,
    same: dict[tuple[bool, bool], int] | None = None,
) -> None:
    rounds = f", {len(arms[BASE].rounds_s)} rounds [95 %]" if same else ""
    table = Table(title=f"Rollouts per hour, {kind}; gain over synchronous sequential{rounds}", title_justify="left")
    for name in ("collection", "per hour", "gain", "agent s", "identical"):
        table.add_column(name, justify="left" if name == "collection" else "right", no_wrap=True)
    rows: list[dict[str, Any]] = []
    for arm, measured in arms.items():
        gain = rates[arm] / rates[BASE] - 1
        paired = gain_over(arms[BASE], measured)
        agent_s = sum(measured.agent_s) / len(measured.agent_s)
        identical = f"{same[arm]}/{len(measured.agent_s)}" if same else "-"
        shown = f"{gain:+.0%}" + (f" [{paired.low:+.0%}, {paired.high:+.0%}]" if same else "")
        table.add_row(name_of(arm), f"{rates[arm]:,.0f}", shown, f"{agent_s:.2f}", identical)
        rows.append({
            "arm": name_of(arm), "per_h": rates[arm], "gain": gain, "agent_s": agent_s, "identical": identical,
            "rounds_s": measured.rounds_s, "gain_ci": [paired.low, paired.high] if same else None,
        })  # fmt: skip
    console.print(table)
    reached = rates[True, True] / rates[BASE]
    console.print(
        f"asynchronous speculative over synchronous sequential: {reached - 1:+.0%}, the goal is {GOAL - 1:+.0%}"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{kind}.json").write_text(json_text({"rounds": len(arms[BASE].rounds_s), "arms": rows}), encoding="utf-8")


if __name__ == "__main__":
    app()
