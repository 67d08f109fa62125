"""The replica: a copy of a rollout's sandbox on this machine, which runs what the rollout runs, only sooner.

Where the real sandbox is remote, nearly all of its latency is transport; a local fork of the same starting state gives
the same output in milliseconds. It follows every committed turn. It is a predictor like any other: what it says is
verified, and once it has seen that it is no true copy any more, it says nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from obsspec.protocols import Emit
from obsspec.sandbox import canonical
from obsspec.sandbox.forks import Forks, open_forks
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.profile import STANDARD, Profile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError, Context, Exchange, Observation, Prediction, SandboxError, ToolCall
from obsspec.world.effects import Effects, effects
from obsspec.world.replica_runs import Runs
from obsspec.world.replica_states import Commands, Run, Trouble
from obsspec.world.stages import Prospect

if TYPE_CHECKING:
    from obsspec.rollout.collector import Environment

SOURCE = "replica"
MAX_DIFFERENCES = 3  # in commands that change nothing; one in a command that changes something is enough
MAX_FORKS = 16
VOLATILE_CONFIDENCE = 0.2
FIRST_S, LATENCIES = 0.01, 25  # what an answer takes as long as none was seen; how many are remembered
PRIOR_HITS, PRIOR_TRIES = 97, 100


class Silence(StrEnum):
    """Why a replica says nothing for the rest of its rollout."""

    NO_SPEC = "no_spec"  # it is not known what the sandbox starts from
    SANDBOX = "sandbox"  # the local sandbox failed
    DRIFTED = "drifted"  # the real sandbox answered otherwise
    TIMED_OUT = "timed_out"  # a command was killed midway, here or there: what it had done by then is chance
    DIVERGED = "diverged"  # another turn was committed than the one that was certain
    CLOSED = "closed"


@dataclass(slots=True)
class ReplicaCounts:
    """Of committed turns: how often the replica printed the same, and other things, and could not tell."""

    equal: int = 0
    differed: int = 0
    differed_volatile: int = 0
    unknown: int = 0  # background jobs ran, or there was no run
    refused: dict[Trouble, int] = field(default_factory=dict[Trouble, int])


class Latency:
    """How long answers take: the median of the last ones, so that a few slow commands say nothing of the others."""

    def __init__(self) -> None:
        self._last = deque([FIRST_S], maxlen=LATENCIES)

    @property
    def seconds(self) -> float:
        return median(self._last)

    def took(self, seconds: float) -> None:
        self._last.append(seconds)

    def takes_longer(self, seconds: float) -> None:
        """Nobody waited any longer."""
        if seconds > self.seconds:
            self._last.append(seconds)


class Replica:
    """The replica of one rollout. Use `Replicas.open`. Its trouble is never the rollout's: it falls silent.

    Cancelling `predict` ends what was run for it alone. `silence` and `detail` say why it stopped, if it did.
    """

    def __init__(self, latency: Latency | None = None) -> None:
        self._latency = latency or Latency()
        self.silence: Silence | None = None
        self.detail = ""
        self.counts = ReplicaCounts()
        self._ready = anyio.Event()
        self._forks: Forks | None = None
        self._runs: Runs | None = None
        self._tasks: TaskGroup | None = None
        self._path: list[Commands] = []  # the committed turns
        self._early: list[Exchange] = []  # committed before the set-up was done

    async def live(self, tasks: TaskGroup, spec: SandboxSpec, settings: ReplicaSettings) -> None:
        """Set up, and stay until cancelled. What runs belongs to `tasks`."""
        try:
            async with open_forks(
                spec,
                limits=settings.limits,
                profile=settings.profile,
                timeout_s=settings.timeout_s,
                max_characters=settings.max_characters,
                max_forks=MAX_FORKS,
            ) as forks:
                self._forks = forks
                self._tasks, self._runs = tasks, Runs(self._start_soon, forks.root, lambda: self.forks < MAX_FORKS // 2)
                early, self._early = self._early, []
                for exchange in early:
                    self._follow(self._runs, exchange)
                self._ready.set()
                await anyio.sleep_forever()
        except (SandboxError, ConfigError, OSError) as error:
            self.fall_silent(Silence.SANDBOX, str(error))
        finally:
            self.fall_silent(Silence.CLOSED, "")
            self._ready.set()

    @property
    def forks(self) -> int:
        """How many states it holds."""
        return 0 if self._forks is None else len(self._forks)

    def fall_silent(self, why: Silence, detail: str) -> None:
        """The first reason stays."""
        if self.silence is None:
            self.silence, self.detail = why, detail

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Emits what the turn prints, or nothing. Waits for the set-up."""
        if self.silence is None:
            await self._ready.wait()
        asked_s = anyio.current_time()
        if self._runs is not None:
            self._catch_up(context)
        known, commands = len(self._path), _commands(context.calls)
        turns = [_commands(exchange.calls) for exchange in context.history]
        if breadth < 1 or self._runs is None or self.silence is not None or turns[:known] != self._path:
            return
        run = self._runs.reach(turns[known:], commands, certain=context.committed == known == len(turns))
        volatile = any(_effects(command).volatile for command in commands)  # read while it runs
        try:
            await run.wait()
        except anyio.get_cancelled_exc_class():
            self._latency.takes_longer(anyio.current_time() - asked_s)
            raise
        if run.trouble is not None or run.jobs:
            trouble = run.trouble or Trouble.JOBS
            self.counts.refused[trouble] = self.counts.refused.get(trouble, 0) + 1
        elif run.result is not None and self.silence is None:
            self._latency.took(anyio.current_time() - asked_s)
            emit(Prediction(run.result, SOURCE, VOLATILE_CONFIDENCE if volatile else self._confidence()))

    def foresee(self, context: Context) -> Prospect | None:
        """Something as long as it follows, unless background jobs run where the rollout stands."""
        del context  # whether the command is volatile takes longer to find out than it helps
        if self._runs is None or self.silence is not None or self._runs.position.jobs:
            return None
        return Prospect(self._confidence(), self._latency.seconds)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Follow a committed turn, and compare with what it really printed once that is known here, too."""
        self._catch_up(context)
        self._commit(Exchange(context.calls, observations))

    def _catch_up(self, context: Context) -> None:
        """Turns without calls are not learnt from, nor are those of a loop that does not say what its tools return."""
        for exchange in context.history[len(self._path) + len(self._early) : context.committed]:
            self._commit(exchange)

    def _commit(self, exchange: Exchange) -> None:
        if self.silence is not None:
            return
        if self._runs is None:
            self._early.append(exchange)
        else:
            self._follow(self._runs, exchange)

    def _follow(self, runs: Runs, exchange: Exchange) -> None:
        commands = _commands(exchange.calls)
        self._path.append(commands)
        if not commands:
            return
        run = runs.commit(commands)
        if run is None:
            self.fall_silent(Silence.DIVERGED, "the turn that was certain to be executed was not")
        else:
            self._start_soon(self._compare, run, exchange.observations)

    def _start_soon(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._guarded, work, *arguments)

    async def _guarded(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        try:
            await work(*arguments)
        except Exception as error:  # noqa: BLE001 - a replica's trouble, of whatever kind, is never the rollout's
            self.fall_silent(Silence.SANDBOX, repr(error))

    async def _compare(self, run: Run, observations: tuple[Observation, ...]) -> None:
        await run.done.wait()
        if run.trouble is Trouble.SANDBOX or run.result is None:
            self.counts.unknown += 1
            self.fall_silent(Silence.SANDBOX, run.detail or "a committed turn could not be followed")
        elif run.timed_out or any(observation.timed_out for observation in observations):
            self.fall_silent(Silence.TIMED_OUT, f"`{run.commands[-1]}` was killed midway")
        elif run.jobs or not observations:
            self.counts.unknown += 1
        else:
            self._judge(run, run.result, observations)

    def _judge(self, run: Run, own: tuple[Observation, ...], real: tuple[Observation, ...]) -> None:
        pairs = zip(run.commands, own, real, strict=False)
        wrong = [command for command, ours, theirs in pairs if ours.text != theirs.text]
        if not wrong and len(own) == len(real):
            self.counts.equal += 1
            return
        touched = [_effects(command) for command in wrong]
        if wrong and all(touch.volatile for touch in touched):
            self.counts.differed_volatile += 1
            return
        self.counts.differed += 1
        changes = any(not touch.volatile and touch.writes for touch in touched)
        if changes or self.counts.differed >= MAX_DIFFERENCES or not wrong:
            named = f"`{wrong[0]}` printed something else there" if wrong else "calls were not executed there"
            self.fall_silent(Silence.DRIFTED, named)

    def _confidence(self) -> float:
        tries = self.counts.equal + self.counts.differed
        return (PRIOR_HITS + self.counts.equal) / (PRIOR_TRIES + tries)


def _commands(calls: Sequence[ToolCall]) -> Commands:
    """All that a terminal sandbox looks at."""
    return tuple(call.command for call in calls)


def _effects(command: str) -> Effects:
    return effects(ToolCall("shell", {"command": command}))


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Must be those of the real sandbox: they show in what commands print."""

    timeout_s: float = 30.0
    max_characters: int = canonical.MAX_CHARACTERS
    limits: Limits = field(default_factory=Limits)
    profile: Profile = STANDARD


SpecOf = Callable[["Environment"], SandboxSpec | None]


@dataclass(frozen=True, slots=True)
class Replicas:
    """Opens a replica for each rollout. `spec_of` says what the sandbox of an environment starts from, if known."""

    spec_of: SpecOf
    settings: ReplicaSettings = field(default_factory=ReplicaSettings)
    latency: Latency = field(default_factory=Latency)

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[Replica, None]:
        """The replica is set up in the background. Leaving the context ends everything it runs."""
        replica, spec = Replica(self.latency), self.spec_of(environment)
        if spec is None:
            replica.fall_silent(Silence.NO_SPEC, "it is not known what the sandbox starts from")
            yield replica
            return
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replica.live, tasks, spec, self.settings)
            try:
                yield replica
            except Exception as error:  # noqa: BLE001 - raised below: outside the task group, so that it stays itself
                failure = error
            finally:
                replica.fall_silent(Silence.CLOSED, "")
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
