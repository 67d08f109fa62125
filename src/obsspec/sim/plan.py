"""From a recorded run to what other settings would give: its turns, tools, sources and engine, simulated.

Whole rollouts are drawn again from the run. What the sources said of a turn, and when, comes with the turn. One replica
as fast as the recorded engine serves the policy and, where the run had one, the language world model. Turns that were
never predicted in the run stay unpredicted; candidates that came too late there are taken to be late everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import anyio
import numpy as np

from obsspec.protocols import Emit, Policy, WorldModel
from obsspec.rollout.collector import Shared
from obsspec.sim.figures import Figures
from obsspec.sim.recorded import LM, Guess, RecordedRun
from obsspec.sim.replica import Room
from obsspec.sim.run import Arm, OnRollout, Parts, simulate
from obsspec.sim.server import ModelServer
from obsspec.sim.sources import Skill, StatedSource
from obsspec.sim.workload import PlannedTurn, Workload
from obsspec.sim.world import World, wrong
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.speculation.session import SpeculationSettings
from obsspec.values import ConfigError, Context, Observation, Prediction, Priority, Sampling


@dataclass(frozen=True, slots=True)
class Assumed:
    """A source that the run did not have: right so often, after so many seconds."""

    match: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """`depths` and `breadths` to try, without and with calls sent ahead; `rollouts` to draw, `concurrency` as recorded
    if 0."""

    depths: tuple[int, ...] = (1, 2, 4)
    guarded: tuple[bool, ...] = (False, True)
    breadths: tuple[int, ...] = (1,)
    rollouts: int = 128
    concurrency: int = 0
    seed: int = 1
    assumed: Assumed | None = None

    def __post_init__(self) -> None:
        for name in ("depths", "breadths"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 1, got {list(getattr(self, name))}")
        if self.rollouts < 2 or self.concurrency < 0:
            raise ConfigError(f"at least 2 rollouts are needed, {self.concurrency or 1} at a time; got {self.rollouts}")
        if self.assumed and not (0 < self.assumed.match <= 1 and self.assumed.seconds >= 0):
            raise ConfigError(
                "an assumed source needs a match above 0 and at most 1, and a latency that is not negative"
            )


@dataclass(frozen=True, slots=True)
class Planned:
    """One line of a plan: what it would give beside the sequential pipeline on the same rollouts."""

    sources: tuple[str, ...]
    depth: int
    breadth: int
    guarded: bool
    figures: Figures


@dataclass(slots=True)
class Plan:
    """Simulates the sequential pipeline and every line."""

    run: RecordedRun
    settings: PlanSettings = field(default_factory=PlanSettings)
    on_rollout: OnRollout | None = None

    @property
    def concurrency(self) -> int:
        return self.settings.concurrency or self.run.setting("concurrency", 1)

    @property
    def _is_changed(self) -> bool:
        return self.concurrency != self.run.setting("concurrency", 1)

    def sequential(self) -> Figures:
        world = World(self._workload())
        return simulate(Arm(world, lambda w: Parts(self._server(w, 1)), concurrency=self.concurrency), self.on_rollout)

    def recorded(self) -> Planned | None:
        """The run's own settings, to be compared with what it measured."""
        if self.run.speculative_s is None or not self.run.sources or self._is_changed:
            return None
        run = self.run
        depth, breadth = run.setting("depth", 1), run.setting("breadth", 1)
        guarded = bool(run.config.get("guarded"))
        return self.line(run.sources, depth, breadth, guarded=guarded, gated=bool(run.config.get("gate")))

    def lines(self) -> Iterator[Planned]:
        """Sources as recorded, without the language model, and alone; then those that are only assumed."""
        settings = self.settings
        for sources, guarded in product(self.choices(), settings.guarded):
            for depth, breadth in product(settings.depths, settings.breadths):
                yield self.line(sources, depth, breadth, guarded=guarded)

    def choices(self) -> list[tuple[str, ...]]:
        recorded = self.run.sources
        found = [recorded, tuple(s for s in recorded if s != LM), *((s,) for s in recorded)]
        if self.settings.assumed is not None:
            found.append(("assumed",))
        choices = [sources for sources in dict.fromkeys(found) if sources]
        if not choices:
            raise ConfigError("no source of the run said anything: give --match and --latency to assume one")
        return choices

    def line(self, sources: tuple[str, ...], depth: int, breadth: int, *, guarded: bool, gated: bool = True) -> Planned:
        world = World(self._workload())
        make = partial(self._parts, sources, depth * breadth, gated, guarded)
        arm = Arm(world, make, SpeculationSettings(depth, breadth, guarded=guarded), self.concurrency)
        return Planned(sources, depth, breadth, guarded, simulate(arm, self.on_rollout))

    def _parts(self, sources: tuple[str, ...], branches: int, gated: bool, guarded: bool, world: World) -> Parts:
        policy = self._server(world, branches)
        spare = self.concurrency * branches if self.run.chunk else 0
        settings = GateSettings(slots=spare, shared_engine=self._shares, guarded=guarded)
        gate: Gate = ExpectedValueGate(settings, load=lambda: policy.in_flight) if gated else OpenGate()
        return Parts(policy, Shared(self._source(sources, world, policy)), gate)

    @property
    def _shares(self) -> bool:
        """Does the language model run on the policy's engine?"""
        return self.run.config.get("world_model", "same") == "same"

    def _source(self, sources: tuple[str, ...], world: World, policy: Policy) -> WorldModel:
        assumed = self.settings.assumed
        if sources == ("assumed",) and assumed is not None:
            skills: Mapping[str, Skill] = {"": Skill(assumed.match, assumed.seconds, assumed.seconds / 2)}
            return StatedSource("assumed", world, skills)
        return RecordedSource(self.run.guesses, sources, world, policy if self._shares else None)

    def _server(self, world: World, branches: int) -> ModelServer:
        """The embedded engine of `obsspec compare` has a slot for each rollout and for each of its branches; any other
        is taken to be large."""
        slots = self.concurrency * (1 + branches) if self.run.chunk else 1 << 20
        chunk = max(self.run.chunk, slots) if self.run.chunk else Room().chunk
        return ModelServer(world.say, self.run.cost, Room(slots, 1 << 40, chunk))

    def _workload(self) -> Workload:
        """Rollouts of the run, each as often as every other, up to one."""
        count, run = self.settings.rollouts, self.run.rollouts
        rng = np.random.default_rng(self.settings.seed)
        order = [int(i) for _ in range(-(-count // len(run))) for i in rng.permutation(len(run))][:count]
        turns = tuple(run[i] for i in order)
        pool = tuple(turn for rollout in run for turn in rollout if turn.command)
        if not pool:
            raise ConfigError("no rollout of the run calls a tool: there is nothing to hide")
        return Workload(turns, self.run.prompt_tokens, pool)


class RecordedSource:
    """Says of a turn what `sources` said of it in the run, right or wrong, as long after the turn.

    What the language model said is written on `engine`, if it has one here, in the time that takes there.
    """

    def __init__(
        self, guesses: tuple[tuple[Guess, ...], ...], sources: tuple[str, ...], world: World, engine: Policy | None
    ) -> None:
        self._guesses = guesses
        self._sources = sources
        self._world = world
        self._engine = engine

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        turn_id = context.completion[-1]
        planned = self._world.planned(turn_id)
        truth = self._world.truth(turn_id)
        started_s = anyio.current_time()
        said = [guess for guess in self._guesses[planned.record] if guess.source in self._sources]
        for variant, guess in enumerate(said[:breadth]):
            if guess.source == LM and self._engine is not None:
                await self._write(context, planned, self._engine)
            else:
                await anyio.sleep(max(0.0, started_s + guess.seconds - anyio.current_time()))
            text = truth if guess.right else wrong(truth, variant)
            emit(Prediction((Observation(text),), guess.source, guess.confidence))

    async def _write(self, context: Context, planned: PlannedTurn, engine: Policy) -> None:
        prompt = self._world.opened(context.prompt, context.completion)
        await engine.generate(prompt, Sampling(planned.observation_tokens), priority=Priority.SPECULATIVE)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """What it says is recorded."""


def slower(run: RecordedRun, tool_s: float) -> RecordedRun:
    """The same run with every tool as much slower or faster as to have this mean latency; it was never measured."""
    seconds = [turn.tool_s for rollout in run.rollouts for turn in rollout if turn.command]
    usual = sum(seconds) / max(1, len(seconds))
    if tool_s < 0 or not usual:
        raise ConfigError(f"--tool-s {tool_s:g}: give seconds that are not negative, for a run whose tools take time")
    factor = tool_s / usual
    rollouts = tuple(
        tuple(replace(t, tool_s=t.tool_s * factor, way_s=t.way_s * factor) for t in rollout) for rollout in run.rollouts
    )
    return replace(run, rollouts=rollouts, sequential_s=None, speculative_s=None)
