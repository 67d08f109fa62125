"""Depth, breadth and tool latency: measured with the real engine and sandboxes, and simulated from one of the arms.

    python benchmarks/sweep.py --tasks 8 --out runs/sweep

Every task goes through every point in turn, with calls sent ahead, and in each round the points start one further on,
so that a drift of the machine falls on all of them. A point is a tool latency, D and K; D=0 is the sequential pipeline.
The simulator gets the turns, tools, candidates and the engine's pace from the sequential rollouts and one other point,
both at the longest tool latency (`--from-depth`, `--from-breadth`), and predicts the mean agent latency of every point
on the same tasks. On a machine with other work, where no two minutes are alike, the second simulation of a point tells
more: its candidates, paces and tools are those that were measured there. Writes rollouts.jsonl (a folder that holds
some of them is continued), sweep.json and sweep.png, and prints the table. Exit status 1 when rollouts differ from the
sequential ones, or the simulator is off by more than 10 %.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (matplotlib is only partly typed)
from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from obsspec.compare.parts import open_parts
from obsspec.compare.run import Parts
from obsspec.compare.settings import CompareSettings
from obsspec.compare.statistics import mean
from obsspec.compare.world import make_world, open_sources
from obsspec.rollout.collector import Collector, Job, RolloutResult
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sim.plan import Plan, PlanSettings
from obsspec.sim.recorded import RecordedRun, read_run
from obsspec.sim.workload import PlannedTurn
from obsspec.tasks.environment import TaskEnvironment, TerminalSandboxes
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split, Task
from obsspec.world.memory import Store

app = App(name="sweep", help=__doc__)
BOUND = 0.1
BREADTH = 1  # of the points that differ in depth, and in the name of the sequential one


@dataclass(frozen=True, slots=True, order=True)
class Point:
    tool_s: float
    depth: int
    breadth: int

    @property
    def name(self) -> str:
        return f"{self.tool_s:g} s, D={self.depth}, K={self.breadth}"


@dataclass(frozen=True, slots=True)
class Simulated:
    agent_s: float
    hidden: float


@dataclass(frozen=True, slots=True)
class Shown:
    """One point: seconds of agent latency over `rollouts` tasks; measured, simulated from the one known point, and from
    its own candidates and paces."""

    point: Point
    rollouts: int
    measured_s: float
    known: Simulated
    own: Simulated
    hidden: float
    identical: int

    @property
    def error(self) -> float:
        return self.known.agent_s / self.measured_s - 1

    @property
    def own_error(self) -> float:
        return self.own.agent_s / self.measured_s - 1


def points_of(tool_s: Sequence[float], depth: Sequence[int], breadth: Sequence[int]) -> list[Point]:
    """Every depth with K=1; the other breadths with the greatest depth."""
    pairs = [(d, BREADTH) for d in depth] + [(max(depth), k) for k in breadth if k != BREADTH]
    return [Point(s, d, k) for s in tool_s for d, k in pairs]


# Measuring ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_collectors(
    settings: CompareSettings, points: Sequence[Point], parts: Parts
) -> AsyncGenerator[dict[Point, Collector], None]:
    """What each point learns is its own."""
    async with AsyncExitStack() as stack:
        collectors: dict[Point, Collector] = {}
        for point in points:
            own = replace(settings, depth=point.depth, breadth=point.breadth, latency=f"{point.tool_s:g}")
            opened = await stack.enter_async_context(open_sources(own))
            store = Store(None)
            stack.callback(store.close)
            world = make_world(own, parts.language, store, opened=opened)
            collectors[point] = Collector(parts.policy, 1, world.speculation if point.depth else None)
        yield collectors


async def measure(settings: CompareSettings, points: Sequence[Point], folder: RunFolder, console: Console) -> None:
    done = {(arm, result.task_id) for arm, result in folder.results()}
    tasks = suite(Split.TEST, settings.tasks, settings.family_names, settings.difficulty, settings.task_seed)
    async with AsyncExitStack() as stack:
        parts = (await stack.enter_async_context(open_parts(settings, console, folder.path))).parts
        sandboxes = {
            tool_s: await stack.enter_async_context(serve_sandboxes(latency=f"{tool_s:g}"))
            for tool_s in dict.fromkeys(point.tool_s for point in points)
        }
        collectors = await stack.enter_async_context(open_collectors(settings, points, parts))
        for number, task in enumerate(tasks):
            turn = number % len(points)
            for point in [*points[turn:], *points[:turn]]:
                if (point.name, task.id) in done:
                    continue
                await parts.start_cold()
                job = _job(task, settings, parts, sandboxes[point.tool_s])
                (result,) = await collectors[point].run([job])
                folder.append(point.name, result)
                said = f"{point.name:<18} {task.id:<24} {result.trajectory.agent_s:6.2f} s  {result.trajectory.stop}"
                console.print(said, highlight=False)


def _job(task: Task, settings: CompareSettings, parts: Parts, sandboxes: TerminalSandboxes) -> Job:
    limits = Limits(min(settings.max_turns, task.max_turns), settings.max_turn_tokens, settings.max_context)
    rules = RolloutRules(parts.renderer, limits, f"{settings.seed}/{task.id}", settings.temperature)
    return Job(TaskEnvironment(task, sandboxes), rules, group=task.id)


# Beside the simulator -------------------------------------------------------------------------------------------------


def simulate(run: RecordedRun, point: Point) -> Simulated:
    """The recorded tasks at a point, with the recorded way to the sandbox and back."""
    plan = Plan(run, PlanSettings(rollouts=len(run.rollouts)))
    sequential = plan.sequential()
    if not point.depth:
        return Simulated(sequential.agent_s, 0.0)
    figures = plan.line(run.sources, point.depth, point.breadth, guarded=True).figures
    return Simulated(figures.agent_s, figures.hidden(sequential))


def read(folder: Path, arm: Point, tool_s: float | None = None) -> RecordedRun:
    """What is known from a point and the sequential one with its tools; as if the way took `tool_s`, if given."""
    run = read_run(folder, replace(arm, depth=0, breadth=BREADTH).name, arm.name)

    def moved(turn: PlannedTurn) -> PlannedTurn:
        way_s = min(turn.tool_s, arm.tool_s)
        there_s = way_s if tool_s is None else tool_s
        return replace(turn, tool_s=turn.tool_s - way_s + there_s, way_s=there_s) if turn.command else turn

    return replace(run, rollouts=tuple(tuple(moved(turn) for turn in turns) for turns in run.rollouts))


def compare(folder: RunFolder, points: Sequence[Point], source: Point) -> list[Shown]:
    by_point: dict[str, dict[str, RolloutResult]] = {}
    for arm, result in folder.results():
        by_point.setdefault(arm, {})[result.task_id] = result
    return [_shown(point, by_point, folder.path, source) for point in points]


def _shown(point: Point, by_point: dict[str, dict[str, RolloutResult]], folder: Path, source: Point) -> Shown:
    own, sequential = by_point[point.name], by_point[replace(point, depth=0, breadth=BREADTH).name]
    tool_s = sum(result.trajectory.tool_s for result in sequential.values())
    saved = sum(sequential[task].trajectory.agent_s - own[task].trajectory.agent_s for task in own)
    return Shown(
        point,
        len(own),
        mean([result.trajectory.agent_s for result in own.values()]),
        simulate(read(folder, source, point.tool_s), point),
        simulate(read(folder, point), point),
        saved / tool_s,
        sum(not differences(sequential[task], own[task]) for task in own),
    )


def table(shown: Sequence[Shown]) -> Table:
    found = Table(title="Mean agent latency: measured, simulated", title_justify="left")
    for column in (
        "tool s",
        "D",
        "K",
        "measured",
        "from one point",
        "error",
        "from itself",
        "error",
        "hidden",
        "identical",
    ):
        found.add_column(column, justify="right")
    for each in shown:
        hidden = f"{each.hidden:.0%}, {each.known.hidden:.0%}, {each.own.hidden:.0%}" if each.point.depth else ""
        found.add_row(
            f"{each.point.tool_s:g}",
            str(each.point.depth),
            str(each.point.breadth),
            f"{each.measured_s:.2f} s",
            f"{each.known.agent_s:.2f} s",
            _error(each.error),
            f"{each.own.agent_s:.2f} s",
            _error(each.own_error),
            hidden,
            f"{each.identical}/{each.rollouts}",
        )
    return found


def _error(value: float) -> Text:
    return Text(f"{value:+.1%}", style="" if abs(value) <= BOUND else "bold red")


def draw(shown: Sequence[Shown], target: Path) -> None:
    latencies = list(dict.fromkeys(each.point.tool_s for each in shown))
    figure = Figure(figsize=(3.6 * len(latencies), 3.4), layout="constrained")
    panels = figure.subplots(1, len(latencies), squeeze=False)[0]
    for panel, tool_s in zip(panels, latencies, strict=True):
        own = [each for each in shown if each.point.tool_s == tool_s]
        at = range(len(own))
        series = (
            ("measured", "#4477aa", [each.measured_s for each in own]),
            ("simulated from one point", "#ccbb44", [each.known.agent_s for each in own]),
            ("simulated from itself", "#aa3377", [each.own.agent_s for each in own]),
        )
        for number, (name, colour, values) in enumerate(series):
            panel.bar([i + 0.27 * (number - 1) for i in at], values, 0.27, label=name, color=colour)
        names = [f"D={each.point.depth}\nK={each.point.breadth}" if each.point.depth else "sequential" for each in own]
        panel.set_xticks(list(at), names, fontsize=7)
        panel.set_title(f"tools {tool_s:g} s away", fontsize=9)
        panel.set_ylabel("mean agent latency, s", fontsize=8)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), fontsize=7)
    figure.savefig(target, dpi=110)


def as_json(shown: Sequence[Shown], source: Point) -> dict[str, Any]:
    return {
        "simulated_from": asdict(source),
        "worst_error": max(abs(each.error) for each in shown),
        "worst_own_error": max(abs(each.own_error) for each in shown),
        "points": [{**asdict(each), "error": each.error, "own_error": each.own_error} for each in shown],
    }


@app.default
def main(
    *,
    tasks: Annotated[int, Parameter(help="Tasks, each at every point.")] = 8,
    tool_s: Annotated[tuple[float, ...], Parameter(help="Transport latencies in seconds.")] = (0.1, 0.5, 1.69),
    depth: Annotated[tuple[int, ...], Parameter(help="Depths D; 0 is always among them.")] = (0, 1, 2, 4),
    breadth: Annotated[tuple[int, ...], Parameter(help="Breadths K.")] = (1, 2),
    seed: Annotated[int, Parameter(help="Which tasks.")] = 0,
    from_depth: Annotated[int, Parameter(help="D of the point that the simulator knows.")] = 4,
    from_breadth: Annotated[int, Parameter(help="K of it.")] = 2,
    out: Annotated[Path, Parameter(help="Folder of the rollouts and the figures.")] = Path("runs/sweep"),
) -> int:
    console = Console()
    points = points_of(sorted(tool_s), sorted({0, *depth}), breadth)
    settings = CompareSettings(
        tasks=tasks, task_seed=seed, depth=max(depth), breadth=max(breadth), latency=f"{max(tool_s):g}"
    )
    folder = RunFolder(out, settings.as_config())
    anyio.run(measure, settings, points, folder, console)
    source = Point(max(tool_s), from_depth, from_breadth)
    shown = compare(folder, points, source)
    folder.write_json("sweep.json", as_json(shown, source))
    draw(shown, out / "sweep.png")
    console.print(table(shown))
    good = all(max(abs(each.error), abs(each.own_error)) <= BOUND and each.identical == each.rollouts for each in shown)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(app())
