"""Runs many rollouts on one event loop, at most `concurrency` at a time, each to exactly one typed result.

A rollout that fails ends with a typed stop reason and leaves the others, and its group, alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from obsspec.protocols import Policy, Sandbox, WorldModel
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.speculation.trace import SpeculationReport
from obsspec.values import ConfigError, SandboxError, StopReason


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier says of a finished rollout, after commit."""

    reward: float
    failed_checks: tuple[str, ...] = ()


class Environment(Protocol):
    """One task as the collector sees it: an instruction, a sandbox, a verifier."""

    @property
    def task_id(self) -> str: ...

    @property
    def image(self) -> str:
        """Identity of the state that a fresh sandbox starts from."""
        ...

    @property
    def instruction(self) -> str: ...

    def open(self) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox, set up. Errors: `SandboxError`."""
        ...

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to make. Rollouts of one `group` share the task; the seed differs within a group.

    `step`: the training step that asks for it.
    """

    environment: Environment
    rules: RolloutRules
    group: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class RolloutResult:
    task_id: str
    seed: str
    group: str
    trajectory: Trajectory
    verdict: Verdict
    speculation: SpeculationReport | None = None  # None: the sequential pipeline


class WorldModels(Protocol):
    """Opens the world model of one rollout; what it starts for that rollout is gone when the context is left."""

    def open(self, environment: Environment, seed: str) -> AbstractAsyncContextManager[WorldModel]: ...


@dataclass(frozen=True, slots=True)
class Shared:
    """One world model for all rollouts."""

    world_model: WorldModel

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[WorldModel, None]:
        yield self.world_model


@dataclass(frozen=True, slots=True)
class Speculation:
    """The parts that turn the sequential pipeline into the speculative one."""

    world_models: WorldModels
    settings: SpeculationSettings = field(default_factory=SpeculationSettings)
    gate: Gate = field(default_factory=OpenGate)


class RolloutLog(Protocol):
    """The log of one rollout. Writing may block for a moment; what it raises ends the collection."""

    def committed(self, trajectory: Trajectory, report: SpeculationReport | None) -> None:
        """The last turn of the trajectory is committed, and what the policy sees of it is appended."""
        ...

    def ended(self, result: RolloutResult) -> None:
        """Called once, last; the stop reason is `CANCELLED` for a rollout that was given up, with the reason."""
        ...


class TurnLog(Protocol):
    """Where committed turns are written down as they come (`obsspec.train.transition_log`)."""

    def begin(self, job: Job) -> RolloutLog: ...


OnResult = Callable[[RolloutResult], Awaitable[None]]
OnCommitted = Callable[[Trajectory, SpeculationReport | None], None]


@dataclass(frozen=True, slots=True)
class Collector:
    """`speculation` None is exactly the sequential pipeline: the same loop on the bare clients."""

    policy: Policy
    concurrency: int
    speculation: Speculation | None = None
    log: TurnLog | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, got {self.concurrency}")

    async def run(self, jobs: Iterable[Job], on_result: OnResult | None = None) -> list[RolloutResult]:
        """One result per job, in the order of `jobs`; `on_result` sees each as soon as it is there.

        Cancelled: running rollouts are cancelled and yield no result; results already seen stay valid. An error of
        `on_result` (a full disk, say) ends the run.
        """
        slots = anyio.Semaphore(self.concurrency)
        results: dict[int, RolloutResult] = {}

        async def one(index: int, job: Job) -> None:
            try:
                results[index] = await self.rollout(job)
            finally:
                slots.release()
            if on_result is not None:
                await on_result(results[index])

        async with anyio.create_task_group() as tasks:
            for index, job in enumerate(jobs):
                await slots.acquire()
                tasks.start_soon(one, index, job, name=f"rollout-{index}")
        return [results[index] for index in sorted(results)]

    async def rollout(self, job: Job) -> RolloutResult:
        """Set up, run the loop, verify; the verifier acts after the session is closed."""
        log = self.log.begin(job) if self.log is not None else None
        verdict, report = Verdict(0.0), None
        trajectory = Trajectory(job.environment.instruction)
        try:
            async with job.environment.open() as sandbox:
                on_committed = log.committed if log is not None else None
                trajectory, report = await play(job, sandbox, self.policy, self.speculation, on_committed)
                verdict = await judge(job, sandbox, trajectory)
        except (SandboxError, OSError) as error:
            trajectory.stop, trajectory.error = StopReason.SANDBOX_ERROR, str(error)
            verdict = unverified(trajectory)
        result = RolloutResult(job.environment.task_id, job.rules.seed, job.group, trajectory, verdict, report)
        if log is not None:
            log.ended(result)
        return result


async def play(
    job: Job,
    sandbox: Sandbox,
    policy: Policy,
    speculation: Speculation | None,
    on_committed: OnCommitted | None = None,
    into: Trajectory | None = None,
) -> tuple[Trajectory, SpeculationReport | None]:
    """The turn loop of one rollout, in a session of its own if it speculates. Raises `SandboxError`.

    `into`: the trajectory to fill. Cancelled: the session is closed, and nothing of the rollout is left at the engine
    or the sandbox.
    """
    tell = on_committed or _nobody
    instruction = job.environment.instruction
    if speculation is None:
        return await run_loop(instruction, job.rules, policy, sandbox, lambda t: tell(t, None), into), None
    async with (
        speculation.world_models.open(job.environment, job.rules.seed) as world_model,
        open_session(
            policy,
            world_model,
            job.rules,
            settings=speculation.settings,
            gate=speculation.gate,
            task_id=job.environment.task_id,
            image=job.environment.image,
        ) as session,
    ):
        trajectory = await run_loop(
            instruction,
            job.rules,
            session.policy,
            session.sandbox(sandbox),
            lambda t: tell(t, session.report),
            into,
        )
        if not trajectory.stop.is_error:
            session.check_committed()
    return trajectory, session.report


async def judge(job: Job, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
    """What the verifier says; it is not asked if a part failed. Raises what a failing sandbox raises."""
    return unverified(trajectory) if trajectory.stop.is_error else await job.environment.verify(sandbox, trajectory)


def unverified(trajectory: Trajectory) -> Verdict:
    return Verdict(0.0, (f"not verified: {trajectory.stop}",))


def _nobody(trajectory: Trajectory, report: SpeculationReport | None) -> None:
    """Nobody looks on."""


def groups(results: Sequence[RolloutResult]) -> dict[str, list[RolloutResult]]:
    """Results by group, in order; a group is complete whatever became of its members."""
    by_group: dict[str, list[RolloutResult]] = {}
    for result in results:
        by_group.setdefault(result.group, []).append(result)
    return by_group
