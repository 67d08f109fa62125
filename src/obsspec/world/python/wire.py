"""Frames over the pipes of the process of a fork server."""

from __future__ import annotations

import anyio
from anyio.abc import Process

from obsspec.sandbox.inside.frames import Decoder, encode
from obsspec.values import SandboxError

Frame = list[bytes]
CHUNK = 1 << 18
GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Wire:
    """One sender and one receiver at a time. Both raise `SandboxError` when the process has gone."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    async def send(self, fields: Frame) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(encode(fields))
        except GONE as error:
            raise SandboxError(await self._epitaph()) from error

    async def receive(self) -> Frame:
        """The next frame. Cancelling loses nothing."""
        assert self._process.stdout is not None
        while not self._frames:
            try:
                self._frames += self._decoder.feed(await self._process.stdout.receive(CHUNK))
            except GONE as error:
                raise SandboxError(await self._epitaph()) from error
            except ValueError as error:
                raise SandboxError(f"the fork server sent {error}") from error
        return self._frames.pop(0)

    async def _epitaph(self) -> str:
        assert self._process.stderr is not None
        said = b""
        with anyio.move_on_after(0.5):
            try:
                while len(said) < 4096:
                    said += await self._process.stderr.receive()
            except GONE:
                pass
        return "the fork server ended: " + (said.decode("utf-8", "replace").strip() or "no reason given")
