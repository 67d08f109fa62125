"""The connection to the init of one sandbox: one request at a time, one answer for each."""

from __future__ import annotations

import anyio
from anyio.abc import Process

from obsspec.sandbox.inside.frames import Decoder, encode
from obsspec.values import SandboxError

Frame = list[bytes]


class Channel:
    """Frames over the pipes of a bubblewrap process. Not safe for concurrent requests."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._decoder = Decoder()
        self._frames: list[Frame] = []

    async def send(self, fields: Frame) -> None:
        """Raises `SandboxError` when the sandbox has gone."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(encode(fields))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise SandboxError(await self._epitaph()) from error

    async def receive(self) -> Frame:
        """The next answer. Cancelling loses nothing: bytes that came stay in the decoder."""
        assert self._process.stdout is not None
        while not self._frames:
            try:
                data = await self._process.stdout.receive(1 << 20)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise SandboxError(await self._epitaph()) from error
            try:
                self._frames += self._decoder.feed(data)
            except ValueError as error:
                raise SandboxError(f"the sandbox sent {error}") from error
        return self._frames.pop(0)

    async def _epitaph(self) -> str:
        assert self._process.stderr is not None
        said = b""
        with anyio.move_on_after(0.5):
            try:
                while len(said) < 4096:
                    said += await self._process.stderr.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        return "the sandbox ended: " + (said.decode("utf-8", "replace").strip() or "no reason given")
