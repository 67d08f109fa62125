"""The map of regimes: where speculation pays, over tool latency, generation length, match and load.

All arms have the same hardware: one replica, which also serves the language world model. A map is made of points; at
each point every arm makes the same rollouts. An arm is a line of `ARMS`: what it adds to the sequential pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from obsspec.rollout.collector import Shared
from obsspec.sim import published
from obsspec.sim.figures import Figures
from obsspec.sim.replica import Room
from obsspec.sim.roofline import H100, QWEN3, Serving, StepCost, kv_tokens, step_cost
from obsspec.sim.run import Arm, OnRollout, Parts, simulate
from obsspec.sim.server import ModelServer
from obsspec.sim.sources import ServedSource, Skill, StatedSource
from obsspec.sim.workload import WorkloadSpec, draw_workload, scaled
from obsspec.sim.world import World
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.session import SpeculationSettings
from obsspec.values import ConfigError
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.stages import Price

MODEL, DEVICES = "8B", 2
SERVING = Serving(sequence_s=20e-6)
SLOTS = 96  # sequences that the replica runs at a time; more requests queue
CALLS, CALLS_SD = 8.0, 4.0
CHEAP_SHARE = 0.6  # of the calls that the cascade's cheap source says something about
CHEAP_S = 0.01


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """`tool_s`: mean tool latency; `tokens` a turn; `match` of the world model; `load`: rollouts in flight."""

    tool_s: float
    tokens: float
    match: float
    load: int


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of a map along each axis, and how many rollouts each point has at least."""

    tool_s: tuple[float, ...] = (0.05, 0.3, 1.0, 1.7, 3.0, 8.0)
    tokens: tuple[float, ...] = (40.0, 150.0, 600.0)
    match: tuple[float, ...] = (0.3, 0.66, 0.9)
    load: tuple[int, ...] = (1, 16, 64, 192)
    rollouts: int = 48

    def __post_init__(self) -> None:
        for name, least in (("tool_s", 0.0), ("tokens", 10.0), ("match", 0.01), ("load", 1)):
            values = getattr(self, name)
            if not values or min(values) < least:
                raise ConfigError(f"a map needs values of {name}, each at least {least:g}; got {list(values)}")
        if max(self.match) > 0.99 or max(self.tokens) > 1500:
            raise ConfigError("a map needs a match of at most 0.99 and at most 1,500 tokens a turn")
        if self.rollouts < 2:
            raise ConfigError(f"a point needs at least 2 rollouts, got {self.rollouts}")

    def points(self) -> list[Point]:
        return [Point(*values) for values in product(self.tool_s, self.tokens, self.match, self.load)]


COARSE = Axes(tool_s=(0.05, 1.7), tokens=(40.0, 600.0), match=(0.3, 0.9), load=(1, 64), rollouts=24)


@dataclass(frozen=True, slots=True)
class Speculative:
    """How an arm speculates: what it opens inside a simulation, and D and K."""

    make: Callable[[Point, World], Parts]
    settings: SpeculationSettings


@dataclass(frozen=True, slots=True)
class Measured:
    """One arm at one point, beside the sequential one on the same rollouts."""

    point: Point
    arm: str
    sequential: Figures
    figures: Figures

    @property
    def speed(self) -> float:
        """Sequential agent latency over this arm's: below 1 it is slower."""
        return self.sequential.agent_s / self.figures.agent_s


def measure(axes: Axes, arms: dict[str, Speculative], on_rollout: OnRollout | None = None) -> Iterator[Measured]:
    """All arms at all points; points that differ in match alone share their sequential run."""
    sequential: dict[Point, Figures] = {}
    for point in axes.points():
        world = World(draw_workload(_workload(point), max(axes.rollouts, point.load * 3 // 2), 1))
        key = replace(point, match=0.0)
        if key not in sequential:
            sequential[key] = simulate(Arm(world, lambda w: Parts(_server(w)), concurrency=point.load), on_rollout)
        for name, arm in arms.items():
            make = partial(arm.make, point)
            figures = simulate(Arm(world, make, arm.settings, point.load), on_rollout)
            yield Measured(point, name, sequential[key], figures)


def _workload(point: Point) -> WorkloadSpec:
    spec = WorkloadSpec(published.commands(), calls=CALLS, calls_sd=CALLS_SD, tokens=point.tokens, spread=1.1)
    return scaled(spec, point.tool_s)


def _server(world: World) -> ModelServer:
    shape = QWEN3[MODEL]
    cost: StepCost = step_cost(shape, H100, DEVICES, SERVING)
    return ModelServer(world.say, cost, Room(SLOTS, kv_tokens(shape, H100, DEVICES)))


def _skills(point: Point) -> dict[str, Skill]:
    """The published commands in their published relation, all together with the match of the point."""
    return published.skills(point.match, 0.0, CHEAP_S)


def _observation(point: Point, world: World) -> Parts:
    """As published: always tries, and asks the language model for every observation; on the policy's own engine."""
    policy = _server(world)
    return Parts(policy, Shared(ServedSource("lm", world, policy, _skills(point))))


def _cascade(point: Point, world: World, *, guarded: bool = False) -> Parts:
    """The shipped gate and cascade: a cheap source that is silent about some calls, and the same language model."""
    policy = _server(world)
    gate = ExpectedValueGate(GateSettings(slots=SLOTS, guarded=guarded), load=lambda: policy.in_flight)
    known = {
        name: replace(s, silent=1 - CHEAP_SHARE, match=s.match * CHEAP_SHARE) for name, s in _skills(point).items()
    }
    sources = (
        Source("memory", StatedSource("memory", world, known)),
        Source("lm", ServedSource("lm", world, policy, _skills(point)), Price.EXPENSIVE),
    )
    return Parts(policy, CascadeModels(sources, gate), gate)


ARMS = {
    "observation": Speculative(_observation, SpeculationSettings(1, 1)),
    "cascade": Speculative(_cascade, SpeculationSettings(4, 1)),
    "guarded": Speculative(partial(_cascade, guarded=True), SpeculationSettings(4, 1, guarded=True)),
}
GATED = ("cascade", "guarded")  # arms that must never be slower than the sequential pipeline
NEVER_BELOW = 0.99
