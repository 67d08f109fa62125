"""Rollouts that share a policy, a hostile world model and a gate, and turns of several Hermes calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import anyio

from obsspec.protocols import Emit
from obsspec.render.hermes import HermesRenderer
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.gate import Breaker
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing import ScriptedPolicy, oracle
from obsspec.testing.delays import choice
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.sandbox import seeded_answers
from obsspec.testing.vocabulary import ToyVocabulary
from obsspec.values import Context, Observation, Prediction, SandboxError, Tokens

VOCABULARY = ToyVocabulary()
RENDERER = HermesRenderer(VOCABULARY)
END = RENDERER.stop_token_ids[0]
ROLLOUTS = 3
LIMITS = Limits(max_turns=6, max_turn_tokens=400, max_context=2500)
DELAYS = (0.0, 0.0, 0.25, 0.5, 2.0, 8.0)


def turn(*commands: str) -> str:
    calls = (json.dumps({"name": "bash", "arguments": {"command": command}}) for command in commands)
    return "".join(f"<tool_call>{call}</tool_call>" for call in calls)


SAYINGS = (
    *(turn(c) for c in ("ls", "cat a", "pwd")),
    *(turn("ls", "cat a"), turn("pwd", "ls", "pwd")) * 2,
    turn("ls") + "<tool_call>",
    '<tool_call>{"name": "bash"</tool_call>',
    "done",
)


def script(prompt: Tokens, random: Random) -> Tokens:
    if random.random() < 0.02:
        return ()
    ids = (*VOCABULARY.encode(random.choice(SAYINGS)), END)
    return ids[:-1] if random.random() < 0.02 else ids


class HostileWorldModel:
    """Keeps every `emit` it was ever given and goes on using them: after it returned, after it was cancelled, and
    with what other sessions asked for."""

    def __init__(self, seed: int, truths: dict[str, object]) -> None:
        self._random = Random(seed)
        self._truths = truths
        self._emits: list[Emit] = []
        self.open = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        self._emits.append(emit)
        self.open += 1
        try:
            for _ in range(self._random.randint(0, 3)):
                await anyio.sleep(self._random.choice(DELAYS))
                self._say(context, self._random.choice((emit, emit, *self._emits)))
        finally:
            self._say(context, emit)  # also when it was cancelled
            self.open -= 1

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        for emit in self._emits[-3:]:  # knows the truth by now
            emit(Prediction(observations, "late", 1.0))

    def _say(self, context: Context, emit: Emit) -> None:
        truth = self._truths[context.task_id](context)  # type: ignore[operator]
        wrong = tuple(Observation(f"{o.text}!") for o in truth)
        options = (truth, truth, truth, wrong, truth[:-1], (*truth[:-1], wrong[-1]), (*truth, truth[0]))
        emit(Prediction(self._random.choice(options), "hostile", 0.5))


@dataclass(slots=True)
class Batch:
    """One collector run and its parts."""

    seed: int
    settings: SpeculationSettings | None  # None: sequential
    bump_s: float | None = None  # new weights, again and again
    policy: ScriptedPolicy = field(init=False)
    world_model: HostileWorldModel = field(init=False)
    environments: list[ScriptedEnvironment] = field(init=False)

    def __post_init__(self) -> None:
        name = "sequential" if self.settings is None else "speculative"
        random = Random(f"{self.seed}/{name}")
        self.policy = ScriptedPolicy(script, first_s=choice(random.random(), DELAYS), chunk=16)
        answers = {str(i): seeded_answers(f"{self.seed}/{i}") for i in range(ROLLOUTS)}
        self.world_model = HostileWorldModel(self.seed, {k: oracle(a) for k, a in answers.items()})
        broken = {str(i): Random(f"{self.seed}/{i}").choice((1, 3, 99, 99)) for i in range(ROLLOUTS)}

        def environment(name: str) -> ScriptedEnvironment:
            def fault(number: int) -> SandboxError | None:
                return SandboxError("planned") if number == broken[name] else None

            return ScriptedEnvironment(name, answers[name], delay_s=lambda _: random.choice(DELAYS), fault=fault)

        self.environments = [environment(str(i)) for i in range(ROLLOUTS)]

    async def run(self) -> list[RolloutResult]:
        speculation = None
        if self.settings is not None:
            speculation = Speculation(Shared(self.world_model), self.settings, Breaker(3, 4))
        collector = Collector(self.policy, ROLLOUTS, speculation)
        jobs = [Job(e, RolloutRules(RENDERER, LIMITS, f"{self.seed}/{e.task_id}")) for e in self.environments]
        async with anyio.create_task_group() as tasks:
            if self.bump_s is not None:
                tasks.start_soon(self._bump, self.bump_s)
            results = await collector.run(jobs)
            tasks.cancel_scope.cancel()
        return results

    async def _bump(self, every_s: float) -> None:
        while True:
            await anyio.sleep(every_s)
            self.policy.weight_version = str(int(self.policy.weight_version) + 1)

    @property
    def left(self) -> list[int]:
        running = [sandbox.running for e in self.environments for sandbox in e.sandboxes]
        return [len(self.policy.open), self.world_model.open, *(e.open_now for e in self.environments), *running]

    @property
    def executed(self) -> Sequence[object]:
        return [[(x.call.command, x.observation) for x in s.log] for e in self.environments for s in e.sandboxes]
