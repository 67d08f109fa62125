"""Many rollouts on one engine in virtual time, sequential and with a gate: where it pays and where it must not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from obsspec.protocols import Emit
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.decisions import Decision
from obsspec.speculation.gate import Gate
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing import Forecast, Move, ScriptedWorldModel, oracle, run_virtual, seeded_answers
from obsspec.testing.contention import ContendedPolicy
from obsspec.testing.delays import constant, uniform
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.scripts import toy_renderer
from obsspec.testing.virtual_clock import Backend
from obsspec.testing.world_model import Plan
from obsspec.values import Context, Observation, Outcome, Prediction, Tokens

COMMANDS = ("ls", "cat", "mkdir", "echo", "rm", "pwd", "wc")


@dataclass(frozen=True, slots=True)
class Regime:
    """`right`: how often predictions are; `capacity`: requests that the engine serves at full speed, 20 ms a token."""

    right: float
    capacity: float
    concurrency: int
    tool_s: tuple[float, float] = (1.0, 2.5)
    tokens: tuple[int, int] = (30, 100)
    prediction_s: float = 0.1
    depth: int = 1
    rollouts: int = 40
    prompt_tokens: tuple[int, int] = (0, 0)  # work before the first token
    guarded: bool = False  # calls are sent ahead; tools are then transport

    def script(self, prompt: Tokens, random: Random) -> Tokens:
        """A turn of so many tokens, the last one of a rollout now and then."""
        text = random.choice(COMMANDS) + " " + "x" * (random.randint(*self.tokens) - 6)
        return toy_renderer().answer(text) if random.random() < 0.02 else toy_renderer().call(text)


@dataclass(frozen=True, slots=True)
class Played:
    results: list[RolloutResult]
    tokens: float  # of work at the engine

    @property
    def agent_s(self) -> float:
        return sum(result.trajectory.agent_s for result in self.results)

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(a.outcome for r in self.results if r.speculation for a in r.speculation.attempts)

    @property
    def decisions(self) -> list[Decision]:
        return [d for r in self.results if r.speculation for d in r.speculation.decisions]

    @property
    def branches(self) -> int:
        return sum(a.branches for r in self.results if r.speculation for a in r.speculation.attempts)


def play(regime: Regime, gate: Gate | None, world_model: OneSource | None = None) -> Played:
    """Without a gate: sequential."""

    async def run() -> Played:
        policy = ContendedPolicy(
            regime.script, capacity=regime.capacity, first_tokens=uniform("prompt", *regime.prompt_tokens)
        )
        speculation = None
        if gate is not None:
            settings = SpeculationSettings(depth=regime.depth, guarded=regime.guarded)
            speculation = Speculation(Shared(world_model or make_world_model(regime)), settings, gate)
        results = await Collector(policy, regime.concurrency, speculation).run(
            _job(i, regime) for i in range(regime.rollouts)
        )
        assert policy.in_flight == 0
        return Played(results, policy.tokens)

    return run_virtual(run, backend=Backend.ASYNCIO)


def ratio(regime: Regime, gate: Gate) -> tuple[float, Played]:
    """Agent latency of the gated arm over that of the sequential one, on the same rollouts, which are equal."""
    sequential, gated = play(regime, None), play(regime, gate)
    assert [differences(a, b) for a, b in zip(sequential.results, gated.results, strict=True)] == [[]] * regime.rollouts
    return gated.agent_s / sequential.agent_s, gated


class OneSource:
    """Right or wrong, its candidates come from one source: nobody can tell them apart."""

    def __init__(self, inner: ScriptedWorldModel, source: str = "guess") -> None:
        self.inner = inner
        self._source = source

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        def renamed(prediction: Prediction) -> None:
            emit(replace(prediction, source=self._source))

        await self.inner.predict(context, breadth, renamed)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self.inner.learn(context, observations)


def make_world_model(regime: Regime, source: str = "guess") -> OneSource:
    oracles = {str(i): oracle(seeded_answers(str(i))) for i in range(regime.rollouts)}
    delay = constant(regime.prediction_s / 2)  # one before the candidate, one after it
    return OneSource(ScriptedWorldModel(lambda c: oracles[c.task_id](c), _plan(regime.right), delay_s=delay), source)


def _plan(right: float) -> Plan:
    random = Random("plan")
    return lambda context, breadth: Forecast((Move.RIGHT if random.random() < right else Move.WRONG,))


def _job(number: int, regime: Regime) -> Job:
    random = Random(f"tool {number}")
    seconds = [random.uniform(*regime.tool_s) for _ in range(12)]  # the same for a call, whenever it is sent
    environment = ScriptedEnvironment(
        str(number),
        seeded_answers(str(number)),
        delay_s=lambda _: 0.0 if regime.guarded else random.uniform(*regime.tool_s),
        way_s=lambda command: seconds[command % len(seconds)] / 2 if regime.guarded else 0.0,
    )
    return Job(environment, RolloutRules(toy_renderer(), Limits(8, 700, 20_000), str(number)))
