"""Reconstructed states in forks of one sandbox, and commands run in them.

A state is an image as known at one time, one variant of what is not known, and the commands that changed it. Commands
that cannot change anything run in the fork of their state; others run in a copy, which becomes the state after them.
"""

from __future__ import annotations

import shlex
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from obsspec.sandbox.fork import Fork
from obsspec.sandbox.forks import ROOT_ENVIRONMENT, ForkIdentity, Forks, open_forks
from obsspec.sandbox.limits import MIB, Limits
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ToolCall
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.layout import lay_out

TIMEOUT_S = 1.0
STATES = 48
SPARE = 2
LIMITS = Limits(processes=512, disk_bytes=16 * MIB, file_bytes=16 * MIB, cpu_s=5)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH, "HOME": "/root", "HOSTNAME": "sandbox", "TIME_STYLE": "+%b %e %H:%M"}
_UNSET = " ".join(sorted(ROOT_ENVIRONMENT.keys() - ENVIRONMENT.keys()))
# an exported function, which bash finds before it looks for a program
_HIDDEN = (
    '{name}() {{ echo "$0: line ${{BASH_LINENO[0]}}: {name}: command not found" >&2; return 127; }}; export -f {name}; '
)


@dataclass(frozen=True, slots=True)
class Run:
    """One command: what the shell is given, and where."""

    arguments: tuple[str, ...]
    directory: str
    hidden: tuple[str, ...] = ()  # programs of this machine that are not to be found


@dataclass(frozen=True, slots=True)
class Place:
    """A state: a name for what is known of the image, which variant of the rest, and the commands that changed it."""

    knowledge: str
    variant: int = 0
    changes: tuple[Run, ...] = ()

    def after(self, run: Run) -> Place:
        return Place(self.knowledge, self.variant, (*self.changes, run))


@dataclass(frozen=True, slots=True)
class Printed:
    """Standard output and errors as one text, in the order they were written."""

    text: str
    exit_code: int
    usable: bool  # ended in time, all of it was read, nothing runs on


@dataclass(frozen=True, slots=True)
class _State:
    fork: Fork
    printed: Printed | None = None  # by the last change


class Rooms:
    """Keeps at most `states` states; the least recently used go first. Everything raises `SandboxError`."""

    def __init__(self, forks: Forks, states: int) -> None:
        self._forks = forks
        self._limit = states
        self._states: OrderedDict[Place, _State] = OrderedDict()
        self._locks: dict[Place, anyio.Lock] = {}
        self._spare: list[Fork] = []

    async def run(self, image: Image, place: Place, run: Run, *, changes: bool) -> Printed:
        """What `run` prints in a state of `image`. `changes`: it may change the state, so it runs in a copy.

        Cancelling kills what was started and forgets a state that it may have left half changed.
        """
        if changes:
            state = await self._state(image, place.after(run))
            assert state.printed is not None
            return state.printed
        state = await self._state(image, place)
        try:
            return await _execute(state.fork, run)
        except BaseException:
            await self._forget(place)
            raise

    async def probe(self, image: Image, place: Place, runs: Sequence[Run]) -> list[Printed]:
        """What each of `runs` prints, one after the other in a copy that is thrown away."""
        fork = await (await self._state(image, place)).fork.fork()
        try:
            return [await _execute(fork, run) for run in runs]
        finally:
            await fork.abandon()

    async def prepare(self) -> None:
        """Make empty forks for the next states, so that these need not wait for them."""
        while len(self._spare) < SPARE:
            self._spare.append(await self._forks.root.fork())

    async def _state(self, image: Image, place: Place) -> _State:
        lock = self._locks.setdefault(place, anyio.Lock())
        try:
            async with lock:
                if place not in self._states:
                    self._states[place] = await self._make(image, place)
                self._states.move_to_end(place)
                state = self._states[place]
        finally:
            if not lock.statistics().tasks_waiting:
                self._locks.pop(place, None)
        while len(self._states) > self._limit:
            await self._forget(next(iter(self._states)))
        return state

    async def _make(self, image: Image, place: Place) -> _State:
        if not place.changes:
            fork = self._spare.pop() if self._spare else await self._forks.root.fork()
            async with _kept(fork):
                await fork.write(lay_out(image, place.variant))
            return _State(fork)
        before = await self._state(image, Place(place.knowledge, place.variant, place.changes[:-1]))
        fork = await before.fork.fork()
        async with _kept(fork):
            return _State(fork, await _execute(fork, place.changes[-1]))

    async def _forget(self, place: Place) -> None:
        state = self._states.pop(place, None)
        if state is not None:
            await state.fork.abandon()


@asynccontextmanager
async def open_rooms(states: int = STATES) -> AsyncGenerator[Rooms]:
    """Rooms without any state. Leaving the context leaves no process. Raises `ConfigError`, `SandboxError`."""
    forks = open_forks(
        SandboxSpec(),
        tree=(),
        identity=ForkIdentity(root=True, directory="/", environment=ENVIRONMENT),
        limits=LIMITS,
        timeout_s=TIMEOUT_S,
        max_forks=states + SPARE + 16,  # some are made before others are forgotten
    )
    async with forks as opened:
        yield Rooms(opened, states)


@asynccontextmanager
async def _kept(fork: Fork) -> AsyncGenerator[None]:
    """Lets go of the fork if the block fails."""
    try:
        yield
    except BaseException:
        await fork.abandon()
        raise


async def _execute(fork: Fork, run: Run) -> Printed:
    """In a shell of its own, as the harness would start it, and with nothing of the state of the fork's shell."""
    hidden = "".join(_HIDDEN.format(name=name) for name in run.hidden)
    where, what = shlex.quote(run.directory), shlex.join(run.arguments)
    command = f"(unset {_UNSET}; cd {where}; unset OLDPWD; {hidden}exec {what}) </dev/null 2>&1"
    result = await fork.execute(ToolCall("bash", {"command": command}))
    usable = not (result.timed_out or result.clipped or result.jobs)
    return Printed(result.stdout.decode("utf-8", "replace"), result.exit_code, usable)
