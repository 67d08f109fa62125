"""The states of a replica, and one run of commands between two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from obsspec.sandbox.fork import Fork
from obsspec.values import Observation, SandboxError

Commands = tuple[str, ...]  # of the calls of one turn


class Trouble(StrEnum):
    """Why a run has no result that may be shown."""

    JOBS = "jobs"  # background jobs run, which cannot be copied
    TOO_MANY = "too_many"  # states are held
    SANDBOX = "sandbox"  # it failed
    DROPPED = "dropped"  # nobody waits for it any more


@dataclass(eq=False, slots=True)
class State:
    """One state: `fork` stands in it, unless a run moved that fork on, or there never was one. `runs` start here."""

    fork: Fork | None = None
    runs: dict[Commands, Run] = field(default_factory=lambda: {})
    spare: Spare | None = None

    @property
    def jobs(self) -> bool:
        """Background jobs were running when a command last ended here."""
        return self.fork is not None and self.fork.jobs


@dataclass(eq=False, slots=True)
class Spare:
    """A copy of a state's fork for the first branch that wants one. There is none if it could not be made."""

    _fork: Fork | None = None
    _made: anyio.Event = field(default_factory=anyio.Event)

    async def make(self, state: State, fork: Fork) -> None:
        copy: Fork | None = None
        try:
            copy = await fork.fork()
            if state.fork is fork:  # otherwise it has run on meanwhile, maybe before it was copied
                self._fork, copy = copy, None
        except (SandboxError, OSError):  # whoever wants it copies for himself, and learns why that is not possible
            return
        finally:
            self._made.set()
            if copy is not None:
                await copy.drop()

    async def take(self) -> Fork | None:
        """Once; then there is none."""
        await self._made.wait()
        fork, self._fork = self._fork, None
        return fork


@dataclass(eq=False, slots=True)
class Run:
    """The calls of one turn on their way from one state to the next.

    `in_place`: on the fork of `before` itself. `result`: once `done`, one observation per call, or None and `trouble`.
    `jobs`: background jobs of earlier commands ran meanwhile, so the result is partly chance.
    """

    commands: Commands
    before: State
    came_from: Run | None  # the run that leads to `before`
    in_place: bool
    after: State = field(default_factory=State)
    result: tuple[Observation, ...] | None = None
    trouble: Trouble | None = None
    detail: str = ""
    timed_out: bool = False
    jobs: bool = False
    committed: bool = False
    waiting: int = 0
    done: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def wait(self) -> None:
        """Cancelling the last waiter of a run that is not committed ends the run."""
        self.waiting += 1
        try:
            await self.done.wait()
        finally:
            self.waiting -= 1
            self.end_if_unwanted()

    def end_if_unwanted(self) -> None:
        if not (self.committed or self.waiting or self.in_place or self.done.is_set()):
            self.scope.cancel()
            if self.before.runs.get(self.commands) is self:
                del self.before.runs[self.commands]
