"""The reference workload with the cascade and guarded calls, on the devices of the sequential run: what is hidden, and
what stands in the way of the rest.

The policy's engine serves nothing but the policy, and there is no second pool. The cascade is one cheap source that is
right as often as stated: a replica, as its sandbox is remote, with memory and rules before it. `language` puts a
language model on the policy's engine in its place for some of the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from obsspec.sim import published
from obsspec.sim.figures import Figures
from obsspec.sim.paper import DEFAULT_TOOL_S, IN_FLIGHT, OUTSIDE_S, REPLICAS, Effort, Paper, policy_server, terminal
from obsspec.sim.roofline import StepCost
from obsspec.sim.run import Arm, OnRollout, Parts, simulate
from obsspec.sim.server import ModelServer
from obsspec.sim.sources import ServedSource, Skill, StatedSource
from obsspec.sim.workload import WorkloadSpec, draw_workload
from obsspec.sim.world import World
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.speculation.session import SpeculationSettings
from obsspec.values import ConfigError
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.stages import Price

MODEL = "8B"
ANY_DEPTH = 32
SAME_WORK = 0.01  # of the sequential run's rollouts an hour
_OFF = SpeculationSettings(depth=0)


@dataclass(frozen=True, slots=True)
class Variant:
    """What speculates, on how many replicas. `match` of a source's candidates, `prediction_s` of the cheap source;
    `language`: share of the calls about which only the language model says something."""

    match: float = 0.9
    depth: int = 4
    prediction_s: float = 0.02
    gated: bool = True
    guarded: bool = True
    language: float = 0.0
    replicas: int = REPLICAS

    def __post_init__(self) -> None:
        if not 0 < self.match <= 1 or self.depth < 1 or self.prediction_s < 0 or self.replicas < 1:
            raise ConfigError(
                "a match above 0 and at most 1, a depth and replicas of at least 1 and a latency that is not negative "
                f"are needed; got {self.match:g}, {self.depth}, {self.replicas}, {self.prediction_s:g}"
            )


@dataclass(frozen=True, slots=True)
class Line:
    """One arm beside the sequential run on the same rollouts; `figures` is that run itself in its own line."""

    name: str
    in_flight: int
    sequential: Figures
    figures: Figures

    @property
    def hidden(self) -> float:
        return self.figures.hidden(self.sequential)

    @property
    def discarded_per_s(self) -> float:
        """Policy tokens discarded for each second of agent latency saved, those of cancelled generations included."""
        saved = self.sequential.agent_s - self.figures.agent_s
        return self.figures.discarded / saved if saved > 0 else 0.0


@dataclass(slots=True)
class Reference:
    """`rollouts` of a simulation of continuous collection; batches are of `IN_FLIGHT`."""

    variant: Variant = field(default_factory=Variant)
    rollouts: int = 512
    seed: int = 1
    on_rollout: OnRollout | None = None
    spec: WorkloadSpec | None = None  # None: with turns as long as the published sequential latency asks for
    turns: int = 0  # simulated so far
    _runs: dict[tuple[Variant | None, int, int, float], Figures] = field(
        default_factory=dict[tuple[Variant | None, int, int, float], Figures]
    )

    def batches(self) -> list[Line]:
        """As published: all rollouts of a batch start together."""
        sequential = self.sequential(IN_FLIGHT, batch=IN_FLIGHT)
        guarded = self.run(self.variant, IN_FLIGHT, batch=IN_FLIGHT)
        return [
            Line("sequential", IN_FLIGHT, sequential, sequential),
            Line("cascade, guarded", IN_FLIGHT, sequential, guarded),
        ]

    def continuous(self) -> list[Line]:
        """With set-up and verifier outside the loop: with as many rollouts in flight, and with as many an hour."""
        sequential = self.sequential(IN_FLIGHT)
        lines = [Line("sequential", IN_FLIGHT, sequential, sequential)]
        in_flight = IN_FLIGHT
        for _ in range(4):
            figures = self.run(self.variant, in_flight)
            lines.append(Line("cascade, guarded", in_flight, sequential, figures))
            ratio = sequential.rollouts_per_h / figures.rollouts_per_h
            if abs(ratio - 1) < SAME_WORK:
                break
            in_flight = max(1, round(in_flight * ratio))
        return [*lines[:2], replace(lines[-1], name="the same, as many rollouts an hour")]

    def causes(self, same_work: int) -> Iterator[Line]:
        """From a world in which nothing stands in the way to this one, a cause at a time, each added to those before.

        `same_work`: rollouts in flight with which as many an hour are made as sequentially.
        """
        real = self.sequential(IN_FLIGHT)
        calm_s = 1 / real.decode_rate
        calm = self.sequential(IN_FLIGHT, token_s=calm_s)
        own = self.variant
        variant = replace(own, match=1.0, depth=ANY_DEPTH, prediction_s=0.0, gated=False, language=0.0)
        changes: list[tuple[str, dict[str, float]]] = [
            ("the last call: beside it only the answer is written", {}),
            (f"a prediction takes {own.prediction_s:g} s", {"prediction_s": own.prediction_s}),
            (f"{1 - own.match:.0%} of the predictions are wrong", {"match": own.match}),
            (f"at most {own.depth} predictions in a chain", {"depth": own.depth}),
        ]
        if own.language:
            changes.append(("only the language model knows some calls", {"language": own.language}))
        for name, change in changes:
            variant = replace(variant, **change)
            yield Line(name, IN_FLIGHT, calm, self.run(variant, IN_FLIGHT, token_s=calm_s))
        name = "requests slow each other down, at as many rollouts an hour"
        yield Line(name, same_work, real, self.run(variant, same_work))
        if own.gated:
            yield Line("the gate refuses some starts", same_work, real, self.run(own, same_work))
        name = f"{IN_FLIGHT} in flight: more of them generate at a time"
        yield Line(name, IN_FLIGHT, real, self.run(own, IN_FLIGHT))

    def sequential(self, in_flight: int, *, batch: int = 0, token_s: float = 0.0) -> Figures:
        return self._run(None, in_flight, batch, token_s)

    def run(self, variant: Variant, in_flight: int, *, batch: int = 0, token_s: float = 0.0) -> Figures:
        """`batch`: rollouts that start together, 0: one after the other. `token_s`: of a token, whatever else runs."""
        return self._run(variant, in_flight, batch, token_s)

    def _run(self, variant: Variant | None, in_flight: int, batch: int, token_s: float) -> Figures:
        key = (variant, in_flight, batch, token_s)
        if key not in self._runs:
            world = World(draw_workload(self._workload(), batch or self.rollouts, self.seed))
            cost = StepCost(overhead_s=token_s) if token_s else None
            make = partial(_parts, variant, self.variant.replicas, cost)
            depths = SpeculationSettings(variant.depth, 1, guarded=variant.guarded) if variant else _OFF
            arm = Arm(world, make, depths, in_flight, batch, 0.0 if batch else OUTSIDE_S)
            self._runs[key] = simulate(arm, self.on_rollout)
            self.turns += round(self._runs[key].rollouts * (self._runs[key].calls + 1))
        return self._runs[key]

    def _workload(self) -> WorkloadSpec:
        if self.spec is None:
            paper = Paper(Effort(batches=1, seed=self.seed), self.on_rollout)
            sequential_s = published.tables()["main"][0]["agent_s"]
            self.spec, _ = paper.calibrate(MODEL, terminal(DEFAULT_TOOL_S), sequential_s)
        return self.spec


def _parts(variant: Variant | None, replicas: int, cost: StepCost | None, world: World) -> Parts:
    policy = policy_server(MODEL, world, replicas=replicas, cost=cost, priorities=True)
    if variant is None:
        return Parts(policy)
    weighing = GateSettings(guarded=variant.guarded)
    gate: Gate = ExpectedValueGate(weighing, load=lambda: policy.in_flight) if variant.gated else OpenGate()
    return Parts(policy, CascadeModels(_sources(variant, world, policy), gate), gate)


def _sources(variant: Variant, world: World, policy: ModelServer) -> list[Source]:
    skills = _skills(variant)
    share = 1 - variant.language
    known = {name: replace(skill, silent=1 - share, match=skill.match * share) for name, skill in skills.items()}
    cheap = Source("replica", StatedSource("replica", world, known))
    if not variant.language:
        return [cheap]
    return [cheap, Source("lm", ServedSource("lm", world, policy, skills, salt=1), Price.EXPENSIVE)]


def _skills(variant: Variant) -> dict[str, Skill]:
    """The published commands in their published relation, all together as often right as stated."""
    if variant.match == 1:
        return {"": Skill(1.0, variant.prediction_s, variant.prediction_s)}
    return published.skills(variant.match, 0.0, variant.prediction_s)
