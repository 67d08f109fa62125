"""The client of one fork server: many runs at a time, each ended when nobody waits for it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

import anyio

from obsspec.sandbox import bubblewrap, identity
from obsspec.sandbox.launch import launched
from obsspec.sandbox.limits import Limits
from obsspec.values import ConfigError, SandboxError
from obsspec.world.python.interpreters import LIMITS, MODULES, Interpreter, arguments
from obsspec.world.python.outcomes import Engine, Outcome, read_outcome
from obsspec.world.python.wire import Frame, Wire

OPEN_S = 60.0
SEND_S = 10.0
ROOT = 0  # the empty state of every room


class LostError(Exception):
    """A run left no state: it was killed, or the state that it starts from is gone."""


@dataclass(slots=True)
class _Waiting:
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: Frame | None = None


class ForkServer:
    """Use `open_fork_server`. `ipython` is the version of IPython inside, "" without; `paths` is `sys.path` inside."""

    def __init__(self, interpreter: Interpreter, wire: Wire) -> None:
        self.interpreter = interpreter
        self.ipython = ""
        self.python = ""
        self.paths: tuple[str, ...] = ()
        self._wire = wire
        self._sending = anyio.Lock()
        self._running = anyio.Semaphore(max(1, os.cpu_count() or 1))  # more at once would only make all of them late
        self._names = itertools.count(1)
        self._waiting: dict[bytes, _Waiting] = {}
        self._failed = ""

    def new_name(self) -> int:
        """For a room or a state; never used before."""
        return next(self._names)

    async def run(
        self, room: int, parent: int, state: int, engine: Engine, code: str, number: int, limit_s: float
    ) -> Outcome:
        """Run `code` in a fork of `parent`, which becomes `state`. A room is made when it is first used.

        Raises `LostError`, and `SandboxError` when the server itself is gone. Cancelled: the run is killed.
        """
        async with self._running:
            return await self._run(room, parent, state, engine, code, number, limit_s)

    async def _run(
        self, room: int, parent: int, state: int, engine: Engine, code: str, number: int, limit_s: float
    ) -> Outcome:
        name = b"%d" % next(self._names)
        options = json.dumps({"engine": engine, "number": number, "limit_s": limit_s}).encode()
        waiting = self._waiting[name] = _Waiting()
        try:
            data = code.encode("utf-8", "surrogatepass")
            await self._send([b"run", name, b"%d" % room, b"%d" % parent, b"%d" % state, options, data])
            await waiting.done.wait()
        except anyio.get_cancelled_exc_class():
            await self._send_whatever_happens([b"cancel", name, b"%d" % room, b"%d" % state])
            raise
        finally:
            del self._waiting[name]
        return self._read(waiting)

    def _read(self, waiting: _Waiting) -> Outcome:
        if waiting.answer is None:
            raise SandboxError(self._failed)
        kind, _, content = waiting.answer
        if kind != b"done":
            raise LostError(content.decode("utf-8", "replace"))
        try:
            return read_outcome(content)
        except ValueError as error:
            raise LostError(f"the REPL sent {error}") from error

    async def drop(self, room: int, state: int) -> None:
        """End a state; those that came from it stay."""
        await self._send_whatever_happens([b"drop", b"%d" % room, b"%d" % state])

    async def close(self, room: int) -> None:
        """End a room and every process in it."""
        await self._send_whatever_happens([b"close", b"%d" % room])

    async def _send(self, frame: Frame) -> None:
        async with self._sending:
            if self._failed:
                raise SandboxError(self._failed)
            try:
                with anyio.fail_after(SEND_S, shield=True):  # half a request has no answer
                    await self._wire.send(frame)
            except TimeoutError as error:
                self._failed = f"the fork server took nothing for {SEND_S:g} s"
                raise SandboxError(self._failed) from error

    async def _send_whatever_happens(self, frame: Frame) -> None:
        with anyio.move_on_after(5.0, shield=True):
            try:
                await self._send(frame)
            except SandboxError:
                return  # with the server everything in it is gone

    async def start(self, limits: Limits) -> None:
        values = {**asdict(limits), "user": identity.UID if identity.two_users() else None}
        try:
            with anyio.fail_after(OPEN_S):
                await self._wire.send([b"open", json.dumps(values).encode(), json.dumps(MODULES).encode()])
                answer = await self._wire.receive()
        except TimeoutError as error:
            raise SandboxError(f"{self.interpreter.path} was not ready within {OPEN_S:g} s") from error
        facts = json.loads(answer[1])
        self.ipython, self.python, self.paths = facts["ipython"], facts["python"], tuple(facts["paths"])

    async def listen(self) -> None:
        """Hands answers to those who wait. When the server is gone, everybody is told."""
        try:
            while True:
                answer = await self._wire.receive()
                waiting = self._waiting.get(answer[1])
                if waiting is not None:
                    waiting.answer = answer
                    waiting.done.set()
        except SandboxError as error:
            self._failed = str(error)
            for waiting in self._waiting.values():
                waiting.done.set()


@asynccontextmanager
async def open_fork_server(interpreter: Interpreter, limits: Limits = LIMITS) -> AsyncGenerator[ForkServer]:
    """A running server. Leaving the context, in any way, ends every room and leaves no process.

    Raises `ConfigError` if this machine cannot make sandboxes, `SandboxError` if the interpreter does not start.
    """
    async with launched(limits, arguments=partial(arguments, interpreter, limits)) as process:
        server = ForkServer(interpreter, Wire(process))
        try:
            await server.start(limits)
        except SandboxError as error:
            if "bwrap: " in str(error):
                raise ConfigError(bubblewrap.refused(str(error))) from error
            raise
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.listen, name="python-fork-server")
            try:
                yield server
            finally:
                tasks.cancel_scope.cancel()
