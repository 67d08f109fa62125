"""Any number of random episodes in virtual time: `python -m obsspec.testing.prove --episodes 100000`.

Exits with 1 when an episode breaks a promise. Every failure names its seed; `--seed S --episodes 1` repeats it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from obsspec.testing.pipelines import Report, run_episode
from obsspec.testing.virtual_clock import Backend, run_virtual, seed_order

BATCH = 500
TRIO_SHARE = 10  # one seed in ten runs on trio, whose order of ready tasks is random, the others on asyncio


@dataclass(slots=True)
class Tally:
    episodes: int = 0
    turns: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    stops: Counter[str] = field(default_factory=Counter[str])
    settings: Counter[str] = field(default_factory=Counter[str])  # by "D/K"
    realized_depth: Counter[int] = field(default_factory=Counter[int])
    realized_breadth: Counter[int] = field(default_factory=Counter[int])
    gates: Counter[str] = field(default_factory=Counter[str])
    stages: Counter[int] = field(default_factory=Counter[int])
    guarded: Counter[str] = field(default_factory=Counter[str])
    cancelled: int = 0
    impatient: int = 0
    failures: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def add(self, report: Report) -> None:
        episode = report.episode
        self.episodes += 1
        self.turns += report.turns
        self.outcomes.update(report.outcomes)
        self.stops.update(report.stops)
        self.settings[f"{episode.depth}/{episode.breadth}"] += 1
        self.realized_depth[report.realized_depth] += 1
        self.realized_breadth[report.branches] += 1
        self.gates[episode.gate] += 1
        self.stages[episode.stages] += 1
        self.guarded.update(report.guarded)
        self.cancelled += episode.cancel_after_s is not None
        self.impatient += episode.impatience_s is not None
        if report.problems:
            self.failures[episode.seed] = report.problems


def backend_of(seed: int) -> Backend:
    return Backend.TRIO if seed % TRIO_SHARE == TRIO_SHARE - 1 else Backend.ASYNCIO


def run_episodes(seeds: Iterable[int], tally: Tally) -> None:
    """Run the episodes of these seeds, one after another, each on its backend."""
    by_backend: dict[Backend, list[int]] = {}
    for seed in seeds:
        by_backend.setdefault(backend_of(seed), []).append(seed)
    for backend, some in by_backend.items():
        run_virtual(_all, some, backend, tally, backend=backend)


async def _all(seeds: list[int], backend: Backend, tally: Tally) -> None:
    for seed in seeds:
        if backend is Backend.TRIO:
            seed_order(seed)
        tally.add(await run_episode(seed))


def summary(tally: Tally, seed: int, seconds: float, cpu_seconds: float) -> dict[str, Any]:
    return {
        "episodes": tally.episodes,
        "seed": seed,
        "turns": tally.turns,
        "outcomes": dict(sorted(tally.outcomes.items())),
        "stops": dict(sorted(tally.stops.items())),
        "episodes_by_depth_and_breadth": dict(sorted(tally.settings.items())),
        "episodes_by_realized_depth": dict(sorted(tally.realized_depth.items())),
        "episodes_by_realized_breadth": dict(sorted(tally.realized_breadth.items())),
        "episodes_by_gate": dict(sorted(tally.gates.items())),
        "episodes_by_stages_of_the_world_model": dict(sorted(tally.stages.items())),
        "guarded_calls": dict(sorted(tally.guarded.items())),
        "with_cancelled_rollout": tally.cancelled,
        "with_cancelled_calls": tally.impatient,
        "failures": tally.failures,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m obsspec.testing.prove", description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000, help="how many random episodes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode; the others count up from it")
    parser.add_argument("--json", type=Path, help="write the counts here")
    options = parser.parse_args(arguments)
    if options.episodes < 1:
        parser.error(f"--episodes must be at least 1, got {options.episodes}")
    tally, start = Tally(), time.monotonic()
    for first in range(options.seed, options.seed + options.episodes, BATCH):
        run_episodes(range(first, min(first + BATCH, options.seed + options.episodes)), tally)
        rate = tally.episodes / (time.monotonic() - start)
        _say(f"\r{tally.episodes}/{options.episodes} episodes, {len(tally.failures)} failed, {rate:.0f}/s", end="")
    figures = summary(tally, options.seed, time.monotonic() - start, time.process_time())
    _show(figures)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if tally.failures else 0


def _show(figures: dict[str, Any]) -> None:
    _say("")
    for name, value in figures.items():
        if name != "failures":
            _say(f"{name.replace('_', ' ')}: {_inline(value)}")
    for seed, problems in list(figures["failures"].items())[:20]:
        _say(f"FAILED --seed {seed} --episodes 1: {'; '.join(problems)}")
    _say(f"{figures['episodes'] - len(figures['failures'])}/{figures['episodes']} episodes equal and quiescent")


def _inline(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{key} {count}" for key, count in cast("dict[str, int]", value).items())


def _say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
