"""CPU time that a session adds to the plain loop, per turn: `python benchmarks/overhead.py`.

Both arms make the same rollouts with clients that answer at once, so everything that is measured is ours. The arms
alternate within a repetition and share the task; the figure is the mean of the paired differences with a 95 % interval.
`match`: every turn is predicted, branched and kept; `rollback`: every turn's guess is wrong, which adds a discarded
generation; `gated`: every turn is predicted and weighed, and nothing is started, since there is no time to hide.
`off` (D = 0) is a session that never speculates.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

from obsspec.protocols import Emit, OnTokens
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.speculation.gate import Gate
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.testing import toy_renderer
from obsspec.values import (
    Completion,
    Context,
    FinishReason,
    Observation,
    Prediction,
    Priority,
    Sampling,
    Tokens,
    ToolCall,
)

T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}  # two-sided, by samples


class InstantPolicy:
    """Answers with the same turn of `tokens` ids after one trip through the event loop."""

    weight_version = ""

    def __init__(self, tokens: int) -> None:
        ids = toy_renderer().call("x" * (tokens - 2))
        self._completion = Completion(ids, (-1.0,) * len(ids), FinishReason.STOP)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        await anyio.lowlevel.checkpoint()
        return self._completion


class InstantSandbox:
    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    async def execute(self, call: ToolCall) -> Observation:
        for _ in range(4):  # the prediction and the branch get their turn before the tool answers
            await anyio.lowlevel.checkpoint()
        return self._observation


class InstantWorldModel:
    def __init__(self, prediction: Observation) -> None:
        self._prediction = Prediction((prediction,), "instant", 1.0)

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        emit(self._prediction)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    depth: int
    right: bool
    gate: Gate | None = None


CASES = (
    Case("off", 0, True),
    Case("gated", 1, True, ExpectedValueGate()),
    Case("match", 1, True),
    Case("rollback", 1, False),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Milliseconds of CPU per turn."""

    case: str
    concurrency: int
    turns: int
    plain_ms: float
    added_ms: float
    interval_ms: float


@dataclass(frozen=True, slots=True)
class Workload:
    prompt_tokens: int
    turn_tokens: int
    observation_tokens: int
    turns: int

    def rules(self) -> RolloutRules:
        limits = Limits(max_turns=self.turns, max_turn_tokens=1000, max_context=1_000_000)
        return RolloutRules(toy_renderer(), limits, "seed")


async def plain(work: Workload, case: Case) -> None:
    policy, sandbox = InstantPolicy(work.turn_tokens), InstantSandbox(_observation(work))
    await run_loop("x" * work.prompt_tokens, work.rules(), policy, sandbox)


async def with_session(work: Workload, case: Case) -> None:
    policy, sandbox = InstantPolicy(work.turn_tokens), InstantSandbox(_observation(work))
    world_model = InstantWorldModel(_observation(work) if case.right else Observation("wrong"))
    rules = work.rules()
    settings = SpeculationSettings(depth=case.depth)
    async with open_session(policy, world_model, rules, settings=settings, gate=case.gate) as session:
        await run_loop("x" * work.prompt_tokens, rules, session.policy, session.sandbox(sandbox))
    matches = sum(attempt.would_match for attempt in session.report.attempts)
    assert matches == (work.turns - 1 if case.depth and case.right else 0), "the case is not what it says"


def _observation(work: Workload) -> Observation:
    return Observation("y" * work.observation_tokens)


def cpu_seconds(
    loop: Callable[[Workload, Case], Awaitable[None]], work: Workload, case: Case, concurrency: int, rollouts: int
) -> float:
    """CPU time of so many rollouts, `concurrency` at a time."""

    async def one(limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            await loop(work, case)

    async def run() -> float:
        limiter = anyio.CapacityLimiter(concurrency)
        start = time.process_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(rollouts):
                tasks.start_soon(one, limiter)
        return time.process_time() - start

    gc.collect()
    return anyio.run(run)


def measure(work: Workload, case: Case, concurrency: int, rollouts: int, repetitions: int) -> Figure:
    turns = rollouts * work.turns
    base: list[float] = []
    added: list[float] = []
    for repetition in range(repetitions + 1):
        arms = [plain, with_session] if repetition % 2 else [with_session, plain]
        seconds = {arm: cpu_seconds(arm, work, case, concurrency, rollouts) for arm in arms}
        if repetition:  # the first one warms up
            base.append(1000 * seconds[plain] / turns)
            added.append(1000 * (seconds[with_session] - seconds[plain]) / turns)
    half = T_95.get(len(added), 2.0) * statistics.stdev(added) / math.sqrt(len(added)) if len(added) > 1 else math.inf
    return Figure(case.name, concurrency, turns, statistics.mean(base), statistics.mean(added), half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 100, 1000], help="rollouts at a time")
    parser.add_argument("--repetitions", type=int, default=5, help="paired repetitions, after one to warm up")
    parser.add_argument("--prompt-tokens", type=int, default=2000, help="tokens of the first prompt")
    parser.add_argument("--turn-tokens", type=int, default=60, help="tokens sampled a turn")
    parser.add_argument("--observation-tokens", type=int, default=140, help="tokens of an observation")
    parser.add_argument("--turns", type=int, default=10, help="turns a rollout")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    work = Workload(options.prompt_tokens, options.turn_tokens, options.observation_tokens, options.turns)
    figures: list[Figure] = []
    sys.stdout.write("case      concurrent  plain loop     added by a session, ms of CPU a turn\n")
    for case in CASES:
        for concurrency in options.concurrency:
            rollouts = max(30, concurrency)
            figure = measure(work, case, concurrency, rollouts, options.repetitions)
            figures.append(figure)
            added = f"{figure.added_ms:9.3f} +- {figure.interval_ms:.3f}"
            row = f"{figure.case:9} {concurrency:10} {figure.plain_ms:8.3f} ms {added}"
            sys.stdout.write(row + "\n")
            sys.stdout.flush()
    if options.json is not None:
        options.json.write_text(
            json.dumps({"workload": asdict(work), "figures": [asdict(f) for f in figures]}, indent=2) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
