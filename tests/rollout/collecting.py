"""Random collections in virtual time: everything that may go wrong goes wrong, and what must hold is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import anyio

from obsspec.protocols import Sandbox
from obsspec.rollout.accounting import Account
from obsspec.rollout.async_collector import AsyncCollector, Collection
from obsspec.rollout.attempts import Attempt, Drop
from obsspec.rollout.collector import Job, RolloutResult, Shared, Speculation, TurnLog, Verdict
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.session import SpeculationSettings
from obsspec.tasks.task import Split
from obsspec.testing import ScriptedPolicy, ScriptedWorldModel, mixture, seeded_answers, terminal_script
from obsspec.testing.delays import Delay, choice, constant
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.policy import Request, sample
from obsspec.testing.sandbox import Answer, oracle
from obsspec.testing.scripts import Script, toy_renderer
from obsspec.values import Context, EngineError, Observation, SandboxError

AT_ONCE = constant(0.0)
TICKS = (0.0, 0.25, 0.5, 1.0, 3.0)
SCRIPT = terminal_script(final=0.25)


@dataclass(slots=True)
class Gauge:
    """How many sandboxes are open, from before set-up until closed, and how many ever were at once."""

    now: int = 0
    most: int = 0

    def change(self, by: int) -> None:
        self.now += by
        self.most = max(self.most, self.now)


@dataclass(slots=True)
class Trouble:
    """Probabilities that a part fails, each time it is used."""

    engine: float = 0.0
    setup: float = 0.0
    tool: float = 0.0
    verify: float = 0.0


class Task(ScriptedEnvironment):
    """Takes its time to be set up, to answer, to be verified and to be closed, and may fail in each."""

    split = Split.TRAIN

    def __init__(
        self,
        name: str,
        gauge: Gauge,
        *,
        setup_s: Delay = AT_ONCE,
        tool_s: Delay = AT_ONCE,
        verify_s: Delay = AT_ONCE,
        close_s: Delay = AT_ONCE,
        trouble: Trouble | None = None,
        random: Random | None = None,
    ) -> None:
        trouble = trouble or Trouble()
        fails = partial(_fails, random or Random(0))
        super().__init__(
            name,
            seeded_answers(name),
            delay_s=lambda call: tool_s(),
            fault=lambda number: SandboxError("planned: tool") if fails(trouble.tool) else None,
        )
        self._gauge, self._trouble, self._fails = gauge, trouble, fails
        self._setup_s, self._verify_s, self._close_s = setup_s, verify_s, close_s

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox]:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._gauge.change(1)
        try:
            await anyio.sleep(self._setup_s())
            if self._fails(self._trouble.setup):
                raise SandboxError("planned: set-up")
            async with super().open() as sandbox:
                yield sandbox
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self._close_s())
            self._gauge.change(-1)

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        await anyio.sleep(self._verify_s())
        if self._fails(self._trouble.verify):
            raise SandboxError("planned: verifier")
        return await super().verify(sandbox, trajectory)


def _fails(random: Random, probability: float) -> bool:
    return random.random() < probability


@dataclass(slots=True)
class Plan:
    """One collection. `updates`: moments of new weights; `cancels`: moments and groups that are given up."""

    seed: int
    groups: int = 6
    size: int = 3
    in_flight: int = 4
    sandboxes: int | None = None
    max_staleness: int | None = None
    strict_version: bool = False
    retries: int = 0
    whole_groups: bool = True
    buffer: int = 2
    speculative: bool = False
    trouble: Trouble = field(default_factory=Trouble)
    updates: Sequence[float] = ()
    cancels: Sequence[tuple[float, str]] = ()
    reads_slowly: bool = False
    leaves_after: int | None = None  # deliveries
    killed_at: float | None = None


@dataclass(slots=True)
class Made:
    """What came of a plan."""

    plan: Plan
    policy: ScriptedPolicy
    gauge: Gauge
    tasks: list[Task]
    collection: Collection | None = None
    account: Account = field(default_factory=Account)
    delivered: list[tuple[Attempt, ...]] = field(default_factory=list[tuple[Attempt, ...]])
    most_in_flight: int = 0
    asked_for: int = 0  # groups

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for group in self.delivered for attempt in group]

    @property
    def results(self) -> dict[str, RolloutResult]:
        """Of what may be used, by seed."""
        return {a.job.rules.seed: a.result for a in self.attempts if a.drop is None}


def make(plan: Plan) -> Made:
    random = Random(f"parts/{plan.seed}")
    fails = partial(_fails, random, plan.trouble.engine)

    def fault(request: Request) -> Exception | None:
        return EngineError("planned: engine") if fails() else None

    policy = ScriptedPolicy(
        SCRIPT, first_s=choice(plan.seed, TICKS), token_s=choice(plan.seed + 1, (0.0, 0.05)), chunk=4, fault=fault
    )
    return Made(plan, policy, Gauge(), [])


def jobs_of(made: Made) -> Iterator[list[Job]]:
    plan = made.plan
    random = Random(f"tasks/{plan.seed}")
    for group in range(plan.groups):
        made.asked_for += 1
        jobs: list[Job] = []
        for member in range(plan.size):
            made.tasks.append(_any_task(f"task-{group}", made, Random(random.random())))
            rules = RolloutRules(toy_renderer(), Limits(5, 60, 600), f"{plan.seed}/{group}/{member}")
            jobs.append(Job(made.tasks[-1], rules, f"group-{group}"))
        yield jobs


def _any_task(name: str, made: Made, random: Random) -> Task:
    delay = choice(random.random(), TICKS)
    times = dict.fromkeys(("setup_s", "tool_s", "verify_s", "close_s"), delay)
    return Task(name, made.gauge, **times, trouble=made.plan.trouble, random=random)


def collector_of(made: Made, log: TurnLog | None) -> AsyncCollector:
    plan = made.plan
    speculation = None
    if plan.speculative:
        model = ScriptedWorldModel(know, mixture(plan.seed, 0.6), delay_s=choice(plan.seed + 2, TICKS[:3]))
        settings = SpeculationSettings(Random(plan.seed).choice((1, 2, 3)), 2, 20.0, guarded=plan.seed % 2 == 0)
        speculation = Speculation(Shared(model), settings)
    return AsyncCollector(
        made.policy,
        plan.in_flight,
        plan.sandboxes,
        speculation,
        plan.max_staleness,
        plan.strict_version,
        plan.retries,
        plan.whole_groups,
        plan.buffer,
        log,
    )


def know(context: Context) -> tuple[Observation, ...]:
    answer: Answer = seeded_answers(context.task_id)
    return oracle(answer)(context)


async def collect(plan: Plan, log: TurnLog | None = None) -> Made:
    """Runs the plan; a killed one ends where it was killed."""
    made = make(plan)
    with anyio.CancelScope() as scope:
        if plan.killed_at is not None:
            scope.deadline = anyio.current_time() + plan.killed_at
        async with (
            collector_of(made, log).collect(jobs_of(made), made.account) as collection,
            anyio.create_task_group() as g,
        ):
            made.collection = collection
            g.start_soon(_watch, made)
            for at_s in plan.updates:
                g.start_soon(_update, made, at_s)
            for at_s, name in plan.cancels:
                g.start_soon(_cancel, collection, at_s, name)
            await _read(made, collection)
            g.cancel_scope.cancel()
    return made


async def _read(made: Made, collection: Collection) -> None:
    pause = choice(made.plan.seed + 3, (0.0, 1.0, 8.0))
    async for group in collection:
        made.delivered.append(group)
        if made.plan.leaves_after == len(made.delivered):
            return
        if made.plan.reads_slowly:
            await anyio.sleep(pause())


async def _watch(made: Made) -> None:
    """Looks at every moment at which anything may have happened."""
    assert made.collection is not None
    while True:
        made.most_in_flight = max(made.most_in_flight, made.collection.in_flight)
        await anyio.sleep(0.05)


async def _update(made: Made, at_s: float) -> None:
    await anyio.sleep(at_s)
    made.policy.weight_version = str(int(made.policy.weight_version) + 1)


async def _cancel(collection: Collection, at_s: float, name: str) -> None:
    await anyio.sleep(at_s)
    collection.cancel(name)


def audit(made: Made) -> list[str]:
    """Every broken promise of a collection that is over."""
    plan, account = made.plan, made.account
    problems = [f"open: {what}" for what in left_open(made)]
    cap = plan.sandboxes or 2 * plan.in_flight
    if made.gauge.most > cap:
        problems.append(f"sandboxes: {made.gauge.most} of {cap}")
    if made.most_in_flight > plan.in_flight:
        problems.append(f"in flight: {made.most_in_flight} of {plan.in_flight}")
    ends = account.used + sum(account.lost.values())
    if account.dispatched != ends:
        problems.append(f"ends: {account.dispatched} dispatched, {ends} ended")
    seeds = Counter(attempt.job.rules.seed for attempt in made.attempts)
    if seeds and max(seeds.values()) > 1:
        problems.append("delivery: a job twice")
    wanted = plan.groups * plan.size
    if plan.leaves_after is None and plan.killed_at is None and len(seeds) != wanted:
        problems.append(f"delivery: {len(seeds)} of {wanted} jobs")
    for attempt in made.attempts:
        problems += _judge(made, attempt)
    return problems


def left_open(made: Made) -> list[str]:
    found = {
        "policy requests": len(made.policy.open),
        "sandboxes": made.gauge.now + sum(task.open_now for task in made.tasks),
        "commands": sum(sandbox.running for task in made.tasks for sandbox in task.sandboxes),
        "slots": made.collection.in_flight if made.collection else 0,
    }
    return [f"{count} {what}" for what, count in found.items() if count]


def _judge(made: Made, attempt: Attempt) -> list[str]:
    plan, trajectory = made.plan, attempt.result.trajectory
    problems: list[str] = []
    if attempt.drop is None and trajectory.stop.is_error:
        problems.append("drop: an error is used")
    if attempt.drop is Drop.STALE and attempt.age <= (plan.max_staleness or 0):
        problems.append("drop: stale without being old")
    if attempt.drop is not None:
        return problems
    if plan.max_staleness is not None and attempt.age > plan.max_staleness:
        problems.append("stale: delivered")
    if plan.strict_version and len(set(trajectory.versions)) > 1:
        problems.append("versions: mixed")
    if not honest(attempt):
        problems.append("versions: a turn was not sampled by the weights that it names")
    return problems


def honest(attempt: Attempt, script: Script = SCRIPT) -> bool:
    """Every turn is what the weights it names sample there."""
    rules, prompt = attempt.job.rules, attempt.job.rules.first(attempt.job.environment.instruction).prompt
    for turn in attempt.result.trajectory.turns:
        key = rules._call(prompt, turn.level).key  # pyright: ignore[reportPrivateUsage]
        assert key is not None
        request = Request(0, key.prompt, key.sampling, None, turn.completion.weight_version)  # pyright: ignore
        drawn = sample(script, request)
        if replace(turn.completion, timing=None) != drawn:
            return False
        prompt = rules.renderer.extend(prompt, turn.completion.token_ids, turn.observations)
    return True
