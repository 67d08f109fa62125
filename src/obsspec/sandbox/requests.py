"""Requests to the init of one sandbox, each with its answer, whatever is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio

from obsspec.sandbox.channel import Channel, Frame
from obsspec.values import SandboxError

ANSWER_S = 10.0  # the init answers well within this, beyond the time of the command itself
CANCEL_S = 5.0


class Requests:
    """Keeps requests and answers in pairs. Not safe for concurrent use: the owner takes turns."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._broken = False

    @property
    def broken(self) -> bool:
        """The sandbox stopped answering and is not asked any more."""
        return self._broken

    async def ask(
        self, request: Frame, seconds: float = ANSWER_S, on_part: Callable[[bytes], None] | None = None
    ) -> Frame:
        """One request and its answer. Raises `SandboxError`, also for an answer that says error.

        `on_part` gets the parts that come before the answer, if the request is for such.

        Cancelling takes the request back, which kills what it started, and still takes its answer.
        """
        if self._broken:
            raise SandboxError("the sandbox stopped answering and was given up")
        try:
            with anyio.fail_after(seconds, shield=True):  # half a request, or one that may not have left, has no answer
                await self._channel.send(request)
            with anyio.fail_after(seconds):
                answer = await self._answer(on_part)
        except TimeoutError as error:
            self._broken = True
            raise SandboxError(f"no answer from the sandbox for {seconds:g} s") from error
        except anyio.get_cancelled_exc_class():
            await self._withdraw()
            raise
        if answer[0] == b"error":
            raise SandboxError(answer[1].decode("utf-8", "replace"))
        return answer

    async def _answer(self, on_part: Callable[[bytes], None] | None) -> Frame:
        while (frame := await self._channel.receive())[0] == b"part":
            if on_part is not None:
                on_part(frame[1])
        return frame

    async def _withdraw(self) -> None:
        """Take back the request under way. A sandbox that does not say within 5 s that it did is given up."""
        self._broken = True
        with anyio.move_on_after(CANCEL_S, shield=True), suppress(SandboxError):
            await self._channel.send([b"cancel"])
            await self._answer(None)
            self._broken = False
