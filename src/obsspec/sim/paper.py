"""The published experiments as arms of a simulation: what is given, calibrated, fitted and assumed.

Taken as given: tool latencies, predictions' latencies and outcome shares, realized breadth. Calibrated: tokens of a
turn, so that the sequential run of a row takes as long as published; seconds outside the loop, by its throughput.
Fitted, to all speculative rows together, are two numbers. The serving hardware is not published and is assumed: of a
few plausible machines (H100, H200, B200; 1 to 4.5 ms of overhead a step) the one that these rows suit best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from obsspec.rollout.collector import Shared
from obsspec.sim import published
from obsspec.sim.figures import Figures
from obsspec.sim.replica import Room
from obsspec.sim.roofline import H100, QWEN3, Serving, StepCost, kv_tokens, step_cost
from obsspec.sim.run import Arm, OnRollout, Parts, simulate
from obsspec.sim.server import ModelServer, Routing
from obsspec.sim.sources import Skill, StatedSource
from obsspec.sim.workload import WorkloadSpec, draw_workload, scaled
from obsspec.sim.world import World
from obsspec.speculation.session import SpeculationSettings

# Fitted. With the spread of turn lengths goes how much of a generation fits beside a tool call, and how deep chains
# get; with the host time of a sequence, how much speculative requests slow committed ones, a large model less so.
TURN_SPREAD = 1.1  # standard deviation of the logarithm of a turn's tokens
SEQUENCE_S = 20e-6  # host seconds that each running sequence adds to an engine step

# Assumed: one node of eight devices for the policy; shares of their peak as commonly reported.
REPLICAS, DEVICES, DEVICE = 4, 2, H100
SERVING = Serving(bandwidth=0.8, flops=0.6, overhead_s=0.001, sequence_s=SEQUENCE_S)
IN_FLIGHT = 256
DEFAULT_TOOL_S = 1.69
TIR_CALLS, TIR_TOOL_S, TIR_MAX_TOKENS = 3.45, 0.4, 8192  # calls: from binomial standard errors; tool latency: assumed
OUTSIDE_S = 25.0  # set-up, verifier, clean-up, before calibration
CLOSE = 0.002  # of calibrated sequential latency


@dataclass(frozen=True, slots=True)
class Effort:
    """`batches` of 256 rollouts for each row; `asynchronous` rollouts for each row of throughput."""

    batches: int = 2
    asynchronous: int = 1024
    seed: int = 1


@dataclass(slots=True)
class Paper:
    """Runs arms, each once."""

    effort: Effort = field(default_factory=Effort)
    on_rollout: OnRollout | None = None
    turns: int = 0  # simulated so far
    _calibrated: dict[tuple[str, WorkloadSpec, float], tuple[WorkloadSpec, Figures]] = field(
        default_factory=dict[tuple[str, WorkloadSpec, float], tuple[WorkloadSpec, Figures]]
    )

    _runs: dict[tuple[object, ...], Figures] = field(default_factory=dict[tuple[object, ...], Figures])

    def calibrate(self, model: str, spec: WorkloadSpec, sequential_s: float) -> tuple[WorkloadSpec, Figures]:
        """The workload whose turns are as long as its sequential latency asks for, and its sequential figures."""
        key = (model, spec, sequential_s)
        if key not in self._calibrated:
            self._calibrated[key] = self._calibrate(model, spec, sequential_s)
        return self._calibrated[key]

    def _calibrate(self, model: str, spec: WorkloadSpec, sequential_s: float) -> tuple[WorkloadSpec, Figures]:
        for _ in range(8):
            figures = self.run(model, spec)
            if abs(figures.agent_s / sequential_s - 1) < CLOSE:
                break
            ratio = (sequential_s - figures.tool_s) / (figures.agent_s - figures.tool_s)
            spec = replace(spec, tokens=spec.tokens * ratio)
        return spec, figures  # pyright: ignore[reportPossiblyUnboundVariable]

    def run(
        self,
        model: str,
        spec: WorkloadSpec,
        skills: Mapping[str, Skill] | None = None,
        *,
        depth: int = 1,
        breadth: int = 1,
        outside_s: float = 0.0,
        asynchronous: bool = False,
    ) -> Figures:
        """One arm; `skills` None is the sequential one. Further candidates get request ids that wander."""
        key = (model, spec, tuple((skills or {}).items()), depth, breadth, outside_s, asynchronous)
        if key not in self._runs:
            self._runs[key] = self._run(model, spec, skills, depth, breadth, outside_s, asynchronous)
        return self._runs[key]

    def _run(
        self,
        model: str,
        spec: WorkloadSpec,
        skills: Mapping[str, Skill] | None,
        depth: int,
        breadth: int,
        outside_s: float,
        asynchronous: bool,
    ) -> Figures:
        rollouts = self.effort.asynchronous if asynchronous else IN_FLIGHT * self.effort.batches
        routing = Routing.WANDER if breadth > 1 else Routing.STICKY
        figures = simulate(
            Arm(
                World(draw_workload(spec, rollouts, self.effort.seed)),
                partial(_parts, model, skills, routing),
                SpeculationSettings(depth, breadth),
                IN_FLIGHT,
                0 if asynchronous else IN_FLIGHT,
                outside_s,
            ),
            self.on_rollout,
        )
        self.turns += round(figures.rollouts * (figures.calls + 1))
        return figures


def _parts(model: str, skills: Mapping[str, Skill] | None, routing: Routing, world: World) -> Parts:
    """The world model has devices of its own, and its published latency."""
    policy = policy_server(model, world, routing=routing)
    return Parts(policy, None if skills is None else Shared(StatedSource("lm", world, skills)))


def policy_server(
    model: str,
    world: World,
    *,
    replicas: int = REPLICAS,
    routing: Routing = Routing.STICKY,
    priorities: bool = False,
    cost: StepCost | None = None,
) -> ModelServer:
    """`cost`: of its steps, if not that of the assumed devices."""
    shape = QWEN3[model]
    return ModelServer(
        world.say,
        cost or step_cost(shape, DEVICE, DEVICES, SERVING),
        Room(kv_tokens=kv_tokens(shape, DEVICE, DEVICES)),
        replicas=replicas,
        routing=routing,
        priorities=priorities,
    )


def terminal(tool_s: float, tokens: float = 292.0) -> WorkloadSpec:
    """The reference workload; `tokens` a turn before calibration."""
    return replace(
        scaled(WorkloadSpec(published.commands(), calls=published.CALLS, spread=TURN_SPREAD), tool_s), tokens=tokens
    )


def default_skills() -> dict[str, Skill]:
    """The 0.6B world model's, as it was used in all experiments but those on its size."""
    return row_skills(published.tables()["world_model_size"][0])


def row_skills(row: published.Row) -> dict[str, Skill]:
    return published.skills(row["match_pct"] / 100, row["cancel_pct"] / 100, row["wm_s"])
