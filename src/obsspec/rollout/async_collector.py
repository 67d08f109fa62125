"""Keeps a number of rollouts in flight for as long as there are jobs, while the weights change underneath.

Rollouts come back in the order in which they end, as a stream that pauses its source when nobody reads it. Every
dispatched rollout ends once: finished, or dropped with a reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import anyio
from anyio.abc import TaskGroup

from obsspec.protocols import Policy
from obsspec.rollout.accounting import Account, Reward, verified
from obsspec.rollout.attempts import Attempt, Drop, Maker
from obsspec.rollout.collector import Job, RolloutLog, Speculation, TurnLog
from obsspec.rollout.trajectory import Trajectory
from obsspec.rollout.weight_ages import Watched, WeightAges
from obsspec.speculation.trace import SpeculationReport
from obsspec.values import ConfigError, StopReason


@dataclass(frozen=True, slots=True)
class AsyncCollector:
    """`speculation` None is the sequential pipeline: the rollouts of both are the same, as far as the weights are.

    `in_flight`: rollouts dispatched whose turn loop is not over. `sandboxes`: open at any instant, from before set-up
    until closed; more than `in_flight`, and verifiers do not hold up turn loops. None: twice as many. A forked sandbox
    of a world model is not one of them.

    `max_staleness`: a rollout is dropped if, when it is delivered, the weights were updated more than so often since
    its oldest token was sampled. As soon as that is certain, it is not made to its end. None: never dropped for that.
    `strict_version`: it is dropped if more than one version sampled it. `retries`: a dropped rollout's job is
    dispatched again up to so often, before it is reported as dropped.

    `whole_groups`: a group is delivered when its last rollout has ended, else each rollout for itself. The end of
    one is nothing to its siblings: the others of a group are made to their own ends. `buffer`: deliveries that may
    wait to be read before no new ones are begun. `reward`: what is learnt from, for the books: a group in which it is
    the same for all has no signal.
    """

    policy: Policy
    in_flight: int
    sandboxes: int | None = None
    speculation: Speculation | None = None
    max_staleness: int | None = None
    strict_version: bool = False
    retries: int = 0
    whole_groups: bool = True
    buffer: int = 8
    log: TurnLog | None = None
    reward: Reward = verified

    def __post_init__(self) -> None:
        least = {"in_flight": 1, "sandboxes": 1, "max_staleness": 0, "retries": 0, "buffer": 1}
        for name, least_value in least.items():
            value = getattr(self, name)
            if value is not None and value < least_value:
                raise ConfigError(f"{name} must be at least {least_value}, got {value}")

    @asynccontextmanager
    async def collect(
        self, groups: Iterable[Sequence[Job]], account: Account | None = None
    ) -> AsyncGenerator[Collection, None]:
        """Collects while the context is open; `groups` may be endless, and is asked for the next when it can be begun.

        Leaving the context, in any way, cancels what is in flight, to nothing at the engine or the sandboxes. What a
        part should not raise, and what the log raises, ends the collection and is raised here. `account` is kept,
        also of what is never delivered.
        """
        began_s = anyio.current_time()
        books = account if account is not None else Account()
        collection: Collection | None = None
        try:
            async with anyio.create_task_group() as tasks:
                collection = Collection(self, groups, books, tasks)
                try:
                    yield collection
                finally:
                    tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise _only(group) from None  # pyright: ignore[reportUnknownArgumentType]
        finally:
            books.wall_s += anyio.current_time() - began_s
            if collection is not None:
                collection.close()


@dataclass(eq=False, slots=True)
class _Unit:
    """What is delivered together. By place: what runs, and what has ended; a place in neither is to be dispatched."""

    jobs: tuple[Job, ...]
    running: dict[int, Attempt] = field(default_factory=dict[int, Attempt])
    ended: dict[int, Attempt] = field(default_factory=dict[int, Attempt])

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self.ended[place] for place in range(len(self.jobs)))


class Collection:
    """The rollouts of a collector, as they end: `async for attempts in collection`, each a tuple.

    The tuple has one attempt for each job of a group, in order, or one; those with a `drop` are not to be used.
    """

    def __init__(
        self, settings: AsyncCollector, groups: Iterable[Sequence[Job]], account: Account, tasks: TaskGroup
    ) -> None:
        self.account = account
        self._settings = settings
        self._tasks = tasks
        self._ages = WeightAges(settings.policy, self._updated)
        sandboxes = anyio.Semaphore(settings.sandboxes or 2 * settings.in_flight)
        self._maker = Maker(Watched(settings.policy, self._ages), settings.speculation, sandboxes)
        self._slots = anyio.Semaphore(settings.in_flight)
        self._open: list[_Unit] = []
        self._ready: deque[_Unit] = deque()
        self._exhausted = False
        self._changed = anyio.Event()
        tasks.start_soon(self._dispatch, iter(groups), name="dispatch")

    # For whoever reads -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> Collection:
        return self

    async def __anext__(self) -> tuple[Attempt, ...]:
        """Cancelled: nothing is lost, the next call returns what this one would have."""
        while True:
            while self._ready:
                unit = self._ready.popleft()
                self._tell()
                self._ages.look()
                self._recheck(unit)
                if len(unit.ended) == len(unit.jobs):
                    self.account.delivered(unit.attempts, self._settings.reward)
                    return unit.attempts
                self._open.append(unit)
            if self._exhausted and not self._open:
                raise StopAsyncIteration
            await self._changed.wait()

    @property
    def in_flight(self) -> int:
        """Rollouts whose turn loop is not over, and a slot that is held for the next."""
        return self._settings.in_flight - self._slots.value

    def look(self) -> None:
        """Looks whether the weights were updated, as is done before each request and after each turn.

        Updates between two looks count as one: a trainer that may update more often than anything is sampled calls
        this after each.
        """
        self._ages.look()

    def cancel(self, group: str) -> None:
        """Gives up the rollouts of this group that are not delivered yet; they are delivered as dropped."""
        for unit in [u for u in (*self._open, *self._ready) if u.jobs[0].group == group]:
            for attempt in unit.running.values():
                attempt.give_up(Drop.CANCELLED)
            for attempt in unit.ended.values():
                self._drop(attempt, Drop.CANCELLED)
            for place, job in enumerate(unit.jobs):
                if place not in unit.running and place not in unit.ended:
                    self._end(unit, place, Attempt(job, 0, Drop.CANCELLED))

    def close(self) -> None:
        """Nothing runs any more, and nobody will read what is ready."""
        for unit in (*self._open, *self._ready):
            for attempt in unit.ended.values():
                self._drop(attempt, Drop.CANCELLED)

    # Dispatching -----------------------------------------------------------------------------------------------------

    async def _dispatch(self, groups: Iterator[Sequence[Job]]) -> None:
        """Asks for the next group once a slot is free for it, so that what is asked for is up to date."""
        await self._admitted()
        while jobs := next(groups, None):
            units = [tuple(jobs)] if self._settings.whole_groups else [(job,) for job in jobs]
            for unit in map(_Unit, units):
                self._open.append(unit)
                for place in range(len(unit.jobs)):
                    self._start(unit, place, 1)
                    await (self._slots.acquire() if place + 1 < len(unit.jobs) else self._admitted())
        self._slots.release()
        if jobs is not None:
            raise ConfigError("a group without jobs can not be collected")
        self._exhausted = True
        self._tell()

    async def _admitted(self) -> None:
        """A slot is taken, and what is ready to be read leaves room for more."""
        while len(self._ready) >= self._settings.buffer:
            await self._changed.wait()
        await self._slots.acquire()

    async def _again(self, unit: _Unit, place: int, number: int) -> None:
        await self._slots.acquire()
        self._start(unit, place, number)

    def _start(self, unit: _Unit, place: int, number: int) -> None:
        """In a slot that is taken; gives it back if the job was cancelled meanwhile."""
        if place in unit.ended:
            self._slots.release()
            return
        attempt = unit.running[place] = Attempt(unit.jobs[place], number)
        self.account.dispatched += 1
        self._tasks.start_soon(self._run, unit, place, attempt, name=f"rollout-{attempt.job.rules.seed}")

    # One attempt -----------------------------------------------------------------------------------------------------

    async def _run(self, unit: _Unit, place: int, attempt: Attempt) -> None:
        slot, log = _Slot(self._slots), None
        over = False
        try:
            log = self._settings.log.begin(attempt.job) if self._settings.log is not None else None
            on_committed = partial(self._committed, attempt, log)
            with attempt.scope:
                await self._maker.make(attempt, on_committed, slot.free)
            over = True
        finally:
            slot.free()
            if not over:
                attempt.drop = attempt.drop or Drop.CANCELLED
            self._over(unit, place, attempt, log)

    def _committed(
        self, attempt: Attempt, log: RolloutLog | None, trajectory: Trajectory, report: SpeculationReport | None
    ) -> None:
        if log is not None:
            log.committed(trajectory, report)
        self._ages.look()
        self._weed(attempt)

    def _updated(self) -> None:
        """New weights: what is now certain to be too old when it is delivered is not made to its end, or made again."""
        for unit in self._open:
            for attempt in unit.running.values():
                self._weed(attempt)
            self._recheck(unit)

    def _weed(self, attempt: Attempt) -> None:
        why = self._unusable(attempt)
        if why is not None:
            attempt.give_up(why)

    def _unusable(self, attempt: Attempt) -> Drop | None:
        versions = attempt.trajectory.versions
        attempt.age = self._ages.age(versions)
        if self._settings.max_staleness is not None and attempt.age > self._settings.max_staleness:
            return Drop.STALE
        mixed = self._settings.strict_version and len(set(versions)) > 1
        return Drop.MIXED_VERSIONS if mixed else None

    # Its end ---------------------------------------------------------------------------------------------------------

    def _over(self, unit: _Unit, place: int, attempt: Attempt, log: RolloutLog | None) -> None:
        del unit.running[place]
        unit.ended[place] = attempt  # the books have it, also if the log raises
        why, attempt.drop = attempt.drop or self._unusable(attempt), None
        if why is not None:
            self._drop(attempt, why)
        if log is not None:
            log.ended(attempt.result)
        if self._retried(unit, place, attempt):
            del unit.ended[place]
        else:
            self._end(unit, place, attempt)

    def _recheck(self, unit: _Unit) -> None:
        """What waited for its siblings, or to be read, may have become too old."""
        for place, attempt in list(unit.ended.items()):
            why = self._unusable(attempt) if attempt.drop is None else None
            if why is not None:
                self._drop(attempt, why)
                if self._retried(unit, place, attempt):
                    del unit.ended[place]

    def _drop(self, attempt: Attempt, why: Drop) -> None:
        if attempt.drop is None:
            attempt.drop = why
            attempt.trajectory.error = attempt.trajectory.error or f"dropped: {why}"
            if attempt.trajectory.stop is StopReason.CANCELLED:
                attempt.cut_off()
            self.account.dropped(attempt)

    def _retried(self, unit: _Unit, place: int, attempt: Attempt) -> bool:
        if attempt.drop in (None, Drop.CANCELLED) or attempt.number > self._settings.retries:
            return False
        self._tasks.start_soon(self._again, unit, place, attempt.number + 1)
        return True

    def _end(self, unit: _Unit, place: int, attempt: Attempt) -> None:
        unit.ended[place] = attempt
        if len(unit.ended) == len(unit.jobs):
            self._open.remove(unit)
            self._ready.append(unit)
            self._tell()

    def _tell(self) -> None:
        """Something has changed for those who wait."""
        self._changed.set()
        self._changed = anyio.Event()


class _Slot:
    """A place in flight that is given back once."""

    def __init__(self, slots: anyio.Semaphore) -> None:
        self._slots: anyio.Semaphore | None = slots

    def free(self) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None


def _only(error: BaseException) -> BaseException:
    """The one error of a group; the group if there are several."""
    while isinstance(error, BaseExceptionGroup):
        errors = cast("BaseExceptionGroup[BaseException]", error).exceptions
        if len(errors) != 1:
            break
        error = errors[0]
    return cast("BaseException", error)
