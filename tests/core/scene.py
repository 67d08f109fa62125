"""One rollout with chosen parts, through either pipeline: the stage of the scenario tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from obsspec.protocols import Emit, Renderer, WorldModel
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.gate import Gate
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.speculation.trace import SpeculationReport
from obsspec.testing import Request, ScriptedPolicy, ScriptedSandbox, ScriptedWorldModel, always, oracle
from obsspec.testing import recite as recite
from obsspec.testing.delays import constant
from obsspec.testing.policy import Fault, Spoil
from obsspec.testing.sandbox import Answer, Mishap
from obsspec.testing.scripts import Script, toy_renderer
from obsspec.testing.world_model import Move, Plan
from obsspec.values import Context, Observation, Outcome, Prediction, SandboxError, ToolCall

INSTRUCTION = "say hello"


def call(command: str) -> tuple[int, ...]:
    """The ids of a turn with this command."""
    return toy_renderer().call(command)


def answer(text: str = "done") -> tuple[int, ...]:
    """The ids of a final turn."""
    return toy_renderer().answer(text)


def says(*texts: str) -> Answer:
    """A sandbox that answers its calls with these texts in order, the last one for ever."""
    return lambda calls: Observation(texts[min(len(calls), len(texts)) - 1])


class Candidates:
    """A world model that emits what a function of the context lists, all at once after a while."""

    def __init__(self, list_them: Callable[[Context], Sequence[str]], after_s: float = 1.0) -> None:
        self._list_them = list_them
        self._after_s = after_s

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        await anyio.sleep(self._after_s)
        for text in self._list_them(context):
            emit(Prediction((Observation(text),), "listed", 0.5))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        return None


@dataclass(slots=True)
class Played:
    trajectory: Trajectory
    policy: ScriptedPolicy
    sandbox: ScriptedSandbox
    world_model: WorldModel | None = None
    report: SpeculationReport = field(default_factory=SpeculationReport)

    @property
    def outcomes(self) -> list[Outcome]:
        return [attempt.outcome for attempt in self.report.attempts]

    @property
    def commands(self) -> list[str]:
        return [c.command for c in self.sandbox.calls]


@dataclass(slots=True)
class Scene:
    """By default a call takes 10 s, a generation 1 s and a right prediction 1 s, and both pipelines agree."""

    script: Script
    answers: Answer = field(default_factory=lambda: says(""))
    renderer: Renderer = field(default_factory=toy_renderer)
    limits: Limits = field(default_factory=lambda: Limits(8, 200, 4000))
    seed: str = "seed"
    depth: int = 1
    breadth: int = 1
    plan: Plan = field(default_factory=lambda: always(Move.RIGHT))
    policy: ScriptedPolicy | None = None  # None: a fresh one for each play
    world_model: WorldModel | None = None
    tool_s: float = 10.0
    generation_s: float = 1.0
    token_s: float = 0.0
    prediction_s: float = 1.0
    predict_timeout_s: float = 30.0
    strict_version: bool = False
    policy_fault: Fault | None = None
    spoil: Spoil | None = None
    sandbox_fault: Callable[[int], SandboxError | None] | None = None
    ignores_cancel: bool = False
    gate: Gate | None = None
    sandbox: ScriptedSandbox | None = None  # None: a fresh one for each play
    guarded: bool = False
    way_s: float = 0.0  # each way of the wire to the sandbox
    mishap: Callable[[int], Mishap | None] | None = None  # of guarded calls
    jobs: Callable[[ToolCall], bool] | None = None
    tells: float = 0.0  # how much of each answer is known when its tool is half-way
    requests: list[Request] = field(default_factory=list[Request])  # of the last play

    @property
    def rules(self) -> RolloutRules:
        return RolloutRules(self.renderer, self.limits, self.seed)

    def make_policy(self) -> ScriptedPolicy:
        self.requests = []

        def watch(request: Request) -> Exception | None:
            self.requests.append(request)
            return self.policy_fault(request) if self.policy_fault else None

        return ScriptedPolicy(
            self.script,
            first_s=constant(self.generation_s),
            token_s=constant(self.token_s),
            fault=watch,
            spoil=self.spoil,
            ignores_cancel=self.ignores_cancel,
        )

    def make_sandbox(self) -> ScriptedSandbox:
        return ScriptedSandbox(
            self.answers,
            delay_s=self._tool_s,
            fault=self.sandbox_fault,
            way_s=lambda _: self.way_s,
            mishap=self.mishap,
            jobs=self.jobs,
            tells=lambda _: self.tells,
        )

    def make_world_model(self) -> ScriptedWorldModel:
        return ScriptedWorldModel(oracle(self.answers), self.plan, delay_s=constant(self.prediction_s))

    def _tool_s(self, call: ToolCall) -> float:
        return self.tool_s

    async def sequential(self) -> Played:
        policy, sandbox = self.policy or self.make_policy(), self.make_sandbox()
        return Played(await run_loop(INSTRUCTION, self.rules, policy, sandbox), policy, sandbox)

    async def speculative(self) -> Played:
        policy, sandbox = self.policy or self.make_policy(), self.sandbox or self.make_sandbox()
        world_model = self.world_model or self.make_world_model()
        settings = SpeculationSettings(
            self.depth, self.breadth, self.predict_timeout_s, self.strict_version, self.guarded
        )
        async with open_session(policy, world_model, self.rules, settings=settings, gate=self.gate) as session:
            trajectory = await run_loop(INSTRUCTION, self.rules, session.policy, session.sandbox(sandbox))
            session.check_committed()
        return Played(trajectory, policy, sandbox, world_model, session.report)

    async def both(self) -> tuple[Played, Played]:
        """Both pipelines, checked to be equal and quiescent."""
        a, b = await self.sequential(), await self.speculative()
        assert told(a) == told(b)
        assert a.commands == b.commands
        assert_quiescent(b)
        return a, b


def told(played: Played) -> Sequence[object]:
    """Everything of a rollout that must not depend on speculation."""
    t = played.trajectory
    turns = [(turn.completion, turn.calls, turn.observations, turn.error) for turn in t.turns]
    return [t.ids, t.mask, t.logprobs, t.versions, turns, t.stop, t.answer]


def assert_quiescent(played: Played) -> None:
    assert not played.policy.open
    assert played.sandbox.running == 0
    if isinstance(played.world_model, ScriptedWorldModel):
        assert played.world_model.open == 0
