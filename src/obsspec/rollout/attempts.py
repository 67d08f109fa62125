"""One attempt at a rollout: set-up beside the first generation, the turn loop, the verifier, and one typed end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum

import anyio

from obsspec.protocols import Policy, Sandbox
from obsspec.rollout.collector import (
    Job,
    OnCommitted,
    RolloutResult,
    Speculation,
    Verdict,
    judge,
    play,
    unverified,
)
from obsspec.rollout.head_start import open_head_start
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.trace import SpeculationReport
from obsspec.values import GenerationKey, RenderError, SandboxError, StopReason


class Drop(StrEnum):
    """Why an attempt is not used."""

    ERROR = "error"  # a part failed in the set-up or the turn loop
    UNSCORED = "unscored"  # the verifier failed
    STALE = "stale"  # its oldest tokens were sampled by weights that are too old
    MIXED_VERSIONS = "mixed versions"  # its tokens were sampled by several weights
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Seconds:
    """Where the time of an attempt went. `loop` is of its turns, `tools` what that waited for tools."""

    room: float = 0.0  # for a sandbox to become free
    setup: float = 0.0
    loop: float = 0.0
    tools: float = 0.0
    verify: float = 0.0

    @property
    def policy(self) -> float:
        """What the turn loop waited for the policy, or in a turn that was cut off."""
        return self.loop - self.tools

    @property
    def environment(self) -> float:
        return self.setup + self.tools + self.verify

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(slots=True)
class Attempt:
    """One dispatch of a job, the `number`-th; 0: none, its group was cancelled while the job waited.

    It ends once. Then `drop` says why it is not used, None that it is; `result` is what there is of it. `age`: updates
    of the weights since the oldest of its tokens was sampled, when it was delivered.
    """

    job: Job
    number: int
    drop: Drop | None = None
    age: int = 0
    seconds: Seconds = field(default_factory=Seconds)
    trajectory: Trajectory = field(init=False)  # as far as it goes
    report: SpeculationReport | None = None
    verdict: Verdict | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def __post_init__(self) -> None:
        self.trajectory = Trajectory(self.job.environment.instruction)

    def cut_off(self) -> None:
        """It was given up in the turn loop, if it ever was there."""
        self.trajectory.end_s = anyio.current_time()
        if not self.trajectory.turns:
            self.trajectory.start_s = self.trajectory.end_s

    @property
    def result(self) -> RolloutResult:
        job, verdict = self.job, self.verdict or unverified(self.trajectory)
        seed, task = job.rules.seed, job.environment.task_id
        return RolloutResult(task, seed, job.group, self.trajectory, verdict, self.report)

    def give_up(self, why: Drop) -> None:
        """The first reason stands, also if it was about to end by itself. What runs is cancelled."""
        self.drop = self.drop or why
        self.scope.cancel()

    def saw(self, report: SpeculationReport | None) -> None:
        """A turn is committed, or the turn loop is over."""
        self.report, self.seconds.tools = report, self.trajectory.tool_s

    def failed(self, error: Exception, why: Drop) -> None:
        self.trajectory.stop, self.trajectory.error = StopReason.SANDBOX_ERROR, str(error)
        self.drop = self.drop or why


@dataclass(frozen=True, slots=True)
class Maker:
    """What attempts are made with. `sandboxes`: one permit for each that may be open."""

    policy: Policy
    speculation: Speculation | None
    sandboxes: anyio.Semaphore

    async def make(self, attempt: Attempt, on_committed: OnCommitted, on_played: Callable[[], None]) -> None:
        """Returns when the attempt is over. `on_played` is called when only the verifier is to come.

        The sandbox is set up while the policy generates the first turn, and holds its permit from before it is opened
        until it is closed. Cancelled: nothing is left at the engine or the sandbox.
        """

        def committed(trajectory: Trajectory, report: SpeculationReport | None) -> None:
            attempt.saw(report)
            on_committed(trajectory, report)

        why = Drop.ERROR
        try:
            async with self._parts(attempt) as (policy, sandbox):
                with _timing(attempt, "loop"):
                    _, report = await play(
                        attempt.job, sandbox, policy, self.speculation, committed, attempt.trajectory
                    )
                attempt.saw(report)
                if attempt.trajectory.stop.is_error:
                    attempt.drop = attempt.drop or why
                on_played()
                why = Drop.UNSCORED
                with _timing(attempt, "verify"):
                    attempt.verdict = await judge(attempt.job, sandbox, attempt.trajectory)
        except (SandboxError, OSError) as error:
            attempt.failed(error, why)

    @asynccontextmanager
    async def _parts(self, attempt: Attempt) -> AsyncGenerator[tuple[Policy, Sandbox], None]:
        async with AsyncExitStack() as stack:
            policy = self.policy
            key = _first_key(attempt.job)
            if key is not None:
                policy = await stack.enter_async_context(open_head_start(policy, key))
            with _timing(attempt, "room"):
                await stack.enter_async_context(self.sandboxes)
            with _timing(attempt, "setup"):
                sandbox = await stack.enter_async_context(attempt.job.environment.open())
            yield policy, sandbox


def _first_key(job: Job) -> GenerationKey | None:
    """None if there is no first call, or if it can not be rendered, as the turn loop will find out."""
    try:
        return job.rules.first(job.environment.instruction).key
    except RenderError:
        return None


@contextmanager
def _timing(attempt: Attempt, name: str) -> Generator[None]:
    """Also what is cut off was spent."""
    began_s = anyio.current_time()
    try:
        yield
    finally:
        setattr(attempt.seconds, name, anyio.current_time() - began_s)
