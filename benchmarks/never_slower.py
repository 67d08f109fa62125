"""Is speculation ever slower? Paired runs of the real pipeline in the three regimes in which it can only lose.

    wrong      every prediction is made wrong before it is used
    fast       tools that answer before a prediction could pay (no transport latency)
    saturated  four rollouts at a time on an engine of one thread

    python benchmarks/never_slower.py --tasks 24 --out runs/never-slower

Prints, per regime, the ratio of mean agent latency (speculative / sequential, both arms interleaved) with its 95 %
interval and how many pairs were identical, and writes them to never-slower.json. A folder that holds some of the
rollouts is continued.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from obsspec.compare.parts import open_parts
from obsspec.compare.run import Arm, Parts, run_pairs
from obsspec.compare.settings import CompareSettings, SandboxKind
from obsspec.compare.statistics import mean, reduction_estimate
from obsspec.compare.summary import Pair, summarize, task_latencies
from obsspec.protocols import Emit, WorldModel
from obsspec.rollout.collector import Environment, RolloutResult, WorldModels
from obsspec.rollout.store import RunFolder, json_text
from obsspec.values import Context, Observation, Prediction

app = App(name="never-slower", help=__doc__)
REGIMES = ("wrong", "fast", "saturated")


@dataclass(frozen=True, slots=True)
class AlwaysWrong:
    """The same candidates at the same moments, each with a text that no tool prints."""

    inner: WorldModels

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[WorldModel, None]:
        async with self.inner.open(environment, seed) as model:
            yield _Wrong(model)


@dataclass(frozen=True, slots=True)
class _Wrong:
    inner: WorldModel

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        def wrong(prediction: Prediction) -> None:
            texts = tuple(Observation(o.text + "\n(never printed)") for o in prediction.observations)
            emit(replace(prediction, observations=texts))

        await self.inner.predict(context, breadth, wrong)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self.inner.learn(context, observations)


def settings_of(regime: str, tasks: int, latency: str, seed: int) -> CompareSettings:
    base = CompareSettings(tasks=tasks, latency=latency, task_seed=seed, observation_only=False)
    match regime:
        case "fast":
            return replace(base, sandbox=SandboxKind.LOCAL)
        case "saturated":
            return replace(base, concurrency=4, tasks=-(-tasks // 8) * 8)
        case _:
            return base


def parts_of(regime: str, parts: Parts) -> Parts:
    if regime != "wrong":
        return parts
    speculation = parts.world.speculation
    forced = replace(speculation, world_models=AlwaysWrong(speculation.world_models))
    return replace(parts, world=replace(parts.world, speculation=forced))


async def measure(regime: str, settings: CompareSettings, out: Path, console: Console) -> list[Pair]:
    folder = RunFolder(out / regime, settings.as_config())

    def said(arm: Arm, result: RolloutResult) -> None:
        console.print(f"{regime} {arm:<11} {result.task_id:<24} {result.trajectory.agent_s:6.2f} s", highlight=False)

    async with open_parts(settings, console, folder.path) as opened:
        return await run_pairs(settings, parts_of(regime, opened.parts), folder, said)


def figures(pairs: list[Pair]) -> dict[str, Any]:
    reduction = reduction_estimate(*task_latencies(pairs))
    summary = summarize(pairs)
    return {
        "pairs": len(pairs),
        "identical": summary["identical"],
        "ratio": 1 - reduction.value,
        "ratio_ci": [1 - reduction.high, 1 - reduction.low],
        "match": summary["match"],
        "attempts": summary["attempts"],
        "gated": summary["gated"],
        "turns": summary["turns_with_a_call"],
        "discarded_policy_tokens": summary["discarded_policy_tokens"],
        "sequential_s": mean([pair.sequential.trajectory.agent_s for pair in pairs]),
    }


def table(results: dict[str, dict[str, Any]]) -> Table:
    shown = Table(title="Agent latency, speculative / sequential", title_justify="left")
    for name in ("regime", "pairs", "identical", "ratio [95 % CI]", "attempts", "gated", "turns", "discarded tokens"):
        shown.add_column(name)
    for regime, r in results.items():
        low, high = r["ratio_ci"]
        ratio = f"{r['ratio']:.3f} [{low:.3f}, {high:.3f}]"
        counts = (r["attempts"], r["gated"], r["turns"], round(r["discarded_policy_tokens"], 1))
        shown.add_row(regime, str(r["pairs"]), str(r["identical"]), ratio, *map(str, counts))
    return shown


@app.default
def main(
    *,
    tasks: Annotated[int, Parameter(help="Pairs per regime.")] = 24,
    latency: Annotated[str, Parameter(help="Transport latency of the remote regimes, seconds.")] = "0.5",
    seed: Annotated[int, Parameter(help="Which tasks.")] = 0,
    regimes: Annotated[str, Parameter(help="Comma-separated.")] = ",".join(REGIMES),
    out: Annotated[Path, Parameter(help="Folder of the rollouts and the figures.")] = Path("runs/never-slower"),
) -> None:
    console = Console()
    results: dict[str, dict[str, Any]] = {}
    for regime in regimes.split(","):
        settings = settings_of(regime, tasks, latency, seed)
        results[regime] = figures(anyio.run(measure, regime, settings, out, console))
        (out / "never-slower.json").write_text(json_text(results), encoding="utf-8")
    console.print(table(results))


if __name__ == "__main__":
    app()
