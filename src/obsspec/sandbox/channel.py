"""The connection to the init of one sandbox: one request at a time, one answer for each."""

from __future__ import annotations

from typing import Protocol

import anyio
from anyio.abc import Process

from obsspec.sandbox.inside.frames import Decoder, encode
from obsspec.values import SandboxError

Frame = list[bytes]
GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Link(Protocol):
    """Bytes to an init and back. Raises what a closed stream of anyio raises, or OSError."""

    async def send(self, data: bytes, /) -> None: ...

    async def receive(self, max_bytes: int, /) -> bytes: ...

    async def epitaph(self) -> str:
        """Why the other end has gone, as far as it said so."""
        ...


class ProcessLink:
    """The pipes of a bubblewrap process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, data: bytes, /) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(data)

    async def receive(self, max_bytes: int, /) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.receive(max_bytes)

    async def epitaph(self) -> str:
        assert self._process.stderr is not None
        said = b""
        with anyio.move_on_after(0.5):
            try:
                while len(said) < 4096:
                    said += await self._process.stderr.receive()
            except GONE:
                pass
        return said.decode("utf-8", "replace").strip() or "no reason given"


class Channel:
    """Frames over a link. Not safe for concurrent requests."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    async def send(self, fields: Frame) -> None:
        """Raises `SandboxError` when the sandbox has gone."""
        try:
            await self._link.send(encode(fields))
        except GONE as error:
            raise SandboxError(f"the sandbox ended: {await self._link.epitaph()}") from error

    async def receive(self) -> Frame:
        """The next answer. Cancelling loses nothing: bytes that came stay in the decoder."""
        while not self._frames:
            try:
                data = await self._link.receive(1 << 20)
            except GONE as error:
                raise SandboxError(f"the sandbox ended: {await self._link.epitaph()}") from error
            try:
                self._frames += self._decoder.feed(data)
            except ValueError as error:
                raise SandboxError(f"the sandbox sent {error}") from error
        return self._frames.pop(0)
