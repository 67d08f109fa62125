"""One sandbox on this machine."""

from __future__ import annotations

from contextlib import suppress

import anyio

from obsspec.sandbox import canonical
from obsspec.sandbox.channel import Channel, Frame
from obsspec.sandbox.inside import fields as wire
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.spec import Entry, EntryKind, Tree
from obsspec.values import Observation, SandboxError, ToolCall

ANSWER_S = 10.0  # the init answers well within this, beyond the time of the command itself
CANCEL_S = 5.0


class LocalSandbox:
    """A `TerminalSandbox` behind a `Channel`. `log` holds every command of the policy, in the order it was sent.

    Cancelling `execute` kills everything that the call started and keeps the sandbox: the next command finds the
    files as they are and the shell state of before the cancelled call.
    """

    def __init__(self, channel: Channel, limits: Limits, timeout_s: float, max_characters: int) -> None:
        self.log: list[str] = []
        self._channel = channel
        self._limits = limits
        self._timeout_s = timeout_s
        self._max_characters = max_characters
        self._turn = anyio.Lock()
        self._broken = False

    async def execute(self, call: ToolCall) -> Observation:
        """Run `call.command` in the shell. Raises `SandboxError` if the sandbox itself fails."""
        command = wire.text(call.command)
        async with self._turn:
            self.log.append(call.command)
            if b"\0" in command:
                return self._observe([b"done", b"126", b"", b"", b"bash: the command contains a NUL byte"])
            answer = await self._ask([b"run", command, wire.number(self._timeout_s)], self._timeout_s + ANSWER_S)
            return self._observe(answer)

    async def tree(self) -> Tree:
        async with self._turn:
            answer = await self._ask([b"tree", wire.number(self._limits.tree_bytes)], ANSWER_S)
        flat = answer[1:]
        return {
            path.decode("utf-8", "surrogateescape"): Entry(EntryKind(kind.decode()), int(mode), content)
            for path, kind, mode, content in zip(flat[0::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
        }

    def _observe(self, answer: Frame) -> Observation:
        _, code, flags, stdout, stderr = answer
        return canonical.observe(
            stdout,
            stderr,
            exit_code=int(code),
            max_characters=self._max_characters,
            clipped=b"k" in flags,
            timed_out_after_s=self._timeout_s if b"t" in flags else None,
            state_lost=b"s" in flags,
        )

    async def _ask(self, request: Frame, seconds: float) -> Frame:
        """One request and its answer. After a cancellation the answer is still taken, so that pairs stay pairs."""
        if self._broken:
            raise SandboxError("the sandbox stopped answering and was given up")
        try:
            with anyio.fail_after(seconds, shield=True):  # half a request, or one that may not have left, has no answer
                await self._channel.send(request)
            with anyio.fail_after(seconds):
                answer = await self._channel.receive()
        except TimeoutError as error:
            self._broken = True
            raise SandboxError(f"no answer from the sandbox for {seconds:g} s") from error
        except anyio.get_cancelled_exc_class():
            await self._withdraw()
            raise
        if answer[0] == b"error":
            raise SandboxError(answer[1].decode("utf-8", "replace"))
        return answer

    async def _withdraw(self) -> None:
        """Take back the request under way. A sandbox that does not say within 5 s that it did is given up."""
        self._broken = True
        with anyio.move_on_after(CANCEL_S, shield=True), suppress(SandboxError):
            await self._channel.send([b"cancel"])
            await self._channel.receive()
            self._broken = False
