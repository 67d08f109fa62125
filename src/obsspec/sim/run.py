"""Runs one arm of a simulation: the shipped collector, session and gate on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from obsspec.rollout.collector import Collector, Job, RolloutResult, Speculation, WorldModels
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.sim import ids
from obsspec.sim.figures import Figures, RolloutFigures, rollout_figures, summarize
from obsspec.sim.server import ModelServer
from obsspec.sim.world import SimEnvironment, SimRenderer, World
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.virtual_clock import Backend, run_virtual
from obsspec.values import StopReason

UNLIMITED = Limits(max_turns=ids.LEVELS - 1, max_turn_tokens=1 << 20, max_context=1 << 30)


@dataclass(frozen=True, slots=True)
class Parts:
    """What is made anew for each run, inside it: servers, sources, a gate. `world_models` None: sequential."""

    policy: ModelServer
    world_models: WorldModels | None = None
    gate: Gate = field(default_factory=OpenGate)
    predictors: tuple[ModelServer, ...] = ()  # servers of world models that are not the policy's


@dataclass(frozen=True, slots=True)
class Arm:
    """`make` builds the parts; `outside_s`: set-up and verifier together, `concurrency`: rollouts in flight.

    `batch`: rollouts that start together, all of which end before the next ones start; 0: as soon as there is room.
    """

    world: World
    make: Callable[[World], Parts]
    settings: SpeculationSettings = field(default_factory=SpeculationSettings)
    concurrency: int = 256
    batch: int = 0
    outside_s: float = 0.0
    limits: Limits = UNLIMITED
    seed: str = "sim"


OnRollout = Callable[[], None]


def simulate(arm: Arm, on_rollout: OnRollout | None = None) -> Figures:
    """The figures of one arm. The same arm gives the same figures. `AssertionError`: a part failed."""
    return run_virtual(_run, arm, on_rollout, backend=Backend.ASYNCIO)


async def _run(arm: Arm, on_rollout: OnRollout | None) -> Figures:
    parts = arm.make(arm.world)
    speculation = None
    if parts.world_models is not None:
        speculation = Speculation(parts.world_models, arm.settings, parts.gate)
    collector = Collector(parts.policy, arm.concurrency, speculation)
    done: list[RolloutFigures] = []
    batches: list[float] = []

    async def reduce(result: RolloutResult) -> None:
        """Only figures are kept: token lists of thousands of rollouts are gigabytes."""
        trajectory = result.trajectory
        if trajectory.stop is not StopReason.FINAL:
            raise AssertionError(f"rollout {result.task_id} ended with {trajectory.stop}: {trajectory.error}")
        for attempt in result.speculation.attempts if result.speculation else ():
            if attempt.detail and not attempt.detail.startswith("TimeoutError"):  # a full engine may be too late
                raise AssertionError(f"a source of rollout {result.task_id} failed: {attempt.detail}")
        done.append(rollout_figures(result, anyio.current_time()))
        trajectory.ids, trajectory.mask, trajectory.logprobs, trajectory.turns = [], [], [], []
        if result.speculation is not None:
            result.speculation.spans, result.speculation.decisions, result.speculation.attempts = [], [], []
        for server in (parts.policy, *parts.predictors):
            server.forget(ids.make(ids.Mark.START, int(result.task_id)))
        if on_rollout is not None:
            on_rollout()

    jobs = _jobs(arm)
    size = arm.batch or len(jobs)
    for begin in range(0, len(jobs), size):
        began_s = anyio.current_time()
        await collector.run(jobs[begin : begin + size], reduce)
        batches.append(anyio.current_time() - began_s)
    assert parts.policy.in_flight == 0
    return summarize(done, batches, arm.concurrency, parts.policy.counts())


def _jobs(arm: Arm) -> list[Job]:
    renderer = SimRenderer(arm.world)
    return [
        Job(SimEnvironment(arm.world, i, arm.outside_s / 2), RolloutRules(renderer, arm.limits, f"{arm.seed}/{i}"))
        for i in range(arm.world.workload.rollouts)
    ]
