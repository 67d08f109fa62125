"""One fork of a sandbox."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum

import anyio

from obsspec.sandbox.channel import GONE, Channel, Link
from obsspec.sandbox.inside.forked import JOBS
from obsspec.sandbox.local_sandbox import CommandResult, LocalSandbox
from obsspec.sandbox.placed import PlacedFile, placing
from obsspec.sandbox.spec import Tree
from obsspec.values import Observation, SandboxError, ToolCall

DROP_S = 3.0


class ForkRefusal(StrEnum):
    """Why there is no fork."""

    JOBS = "jobs"  # processes of earlier commands still run; they cannot be copied
    TOO_MANY = "too_many"
    DRIFTED = "drifted"  # a command was cancelled midway: nobody knows what it did
    CLOSED = "closed"


class ForkError(SandboxError):
    def __init__(self, refusal: ForkRefusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class ForkLink:
    """A socket to the init of a fork. What went wrong stands on the stderr of the whole sandbox.

    No stream of anyio: those complain when they are cancelled just as bytes come in, which is what copies that nobody
    wants any more are.
    """

    def __init__(self, connection: socket.socket, sandbox: Link) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._sandbox = sandbox

    async def send(self, data: bytes, /) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def receive(self, max_bytes: int, /) -> bytes:
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    async def epitaph(self) -> str:
        return await self._sandbox.epitaph()

    async def end(self) -> None:
        """Ask the init to end, and return when nothing of the fork is left."""
        with suppress(*GONE):
            self._socket.shutdown(socket.SHUT_WR)
            while True:
                await self.receive(1 << 16)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()


Copy = Callable[[bytes, bytes, bytes], Awaitable["Fork"]]


class Fork:
    """Runs commands, one at a time, as a `LocalSandbox` does.

    `drifted`: an `execute` was cancelled, so files may be anything between before and after it. `jobs`: processes ran
    on after the last command.
    """

    def __init__(
        self,
        sandbox: LocalSandbox,
        link: ForkLink,
        channel: Channel,
        number: bytes,
        copy: Copy,
        forget: Callable[[Fork], None],
    ) -> None:
        self.channel = channel
        self.drifted = False
        self.jobs = False
        self._sandbox = sandbox
        self._link = link
        self._number = number
        self._copy = copy
        self._forget = forget
        self._dropped = False

    async def execute(self, call: ToolCall) -> CommandResult:
        """Run `call.command`. Cancelling kills what it started and marks the fork as drifted. Raises `SandboxError`."""
        self._check()
        try:
            result = await self._sandbox.run(call)
        except anyio.get_cancelled_exc_class():
            self.drifted = True
            raise
        self.jobs = result.jobs
        return result

    def observe(self, result: CommandResult) -> Observation:
        """What the policy sees of it, by the rule of all sandboxes."""
        return self._sandbox.observe(result)

    async def fork(self) -> Fork:
        """An independent copy. Raises `ForkError`; cancelling leaves no copy."""
        self._check()
        if self.drifted:
            raise ForkError(ForkRefusal.DRIFTED, "a command of this fork was cancelled midway: fork an earlier one")
        async with self._sandbox.turn:
            try:
                _, step, last = await self._sandbox.requests.ask([b"checkpoint"])
            except SandboxError as error:
                if str(error) != JOBS.decode():
                    raise
                self.jobs = True
                raise ForkError(ForkRefusal.JOBS, "background jobs run, which cannot be copied") from error
            return await self._copy(self._number, step, last)

    async def write(self, files: Sequence[PlacedFile]) -> None:
        """Lay down files, in order. Raises `SandboxError` for a path that cannot be written."""
        self._check()
        async with self._sandbox.turn:
            await self._sandbox.requests.ask(placing(files))

    async def tree(self) -> Tree:
        """Every path under HOME."""
        self._check()
        return await self._sandbox.tree()

    async def drop(self) -> None:
        """End the fork and everything that runs in it. Returns when its processes are gone, also when cancelled."""
        if self._dropped:
            return
        self._dropped = True
        with anyio.move_on_after(DROP_S, shield=True):
            await self._link.end()
        await self.abandon()

    async def abandon(self) -> None:
        """Let go of it without waiting for the end of its processes."""
        self._dropped = True
        self._forget(self)
        self._link.close()

    def _check(self) -> None:
        if self._dropped:
            raise ForkError(ForkRefusal.CLOSED, "the fork was dropped")
