"""One sandbox on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from obsspec.protocols import Hear
from obsspec.sandbox import canonical
from obsspec.sandbox.beginning import Beginning
from obsspec.sandbox.channel import Channel, Frame
from obsspec.sandbox.commands import Commands, Performed, Say
from obsspec.sandbox.inside import fields as wire
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.requests import ANSWER_S, Requests
from obsspec.sandbox.spec import Entry, EntryKind, Tree
from obsspec.values import Guard, Observation, Refused, ToolCall


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one command did, before the canonical rule makes an observation of it.

    `clipped`: the streams are only the head of what was printed. `state_lost`: the shell state is that of before.
    `jobs`: processes of this or an earlier command still run.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int
    clipped: bool = False
    timed_out: bool = False
    state_lost: bool = False
    jobs: bool = False


class LocalSandbox:
    """A `TerminalSandbox` behind a `Channel`. `log` holds every command of the policy, in the order they began.

    Cancelling `execute` kills everything that the call started and keeps the sandbox: the next command finds the
    files as they are and the shell state of before the cancelled call.
    """

    def __init__(self, channel: Channel, limits: Limits, timeout_s: float, max_characters: int) -> None:
        self.log: list[str] = []
        self.requests = Requests(channel)
        self._commands = Commands(self._perform)
        self.turn = self._commands.turn  # held by whoever asks
        self._limits = limits
        self._timeout_s = timeout_s
        self._max_characters = max_characters

    async def execute(self, call: ToolCall, number: int | None = None) -> Observation:
        """Run `call.command` in the shell. Raises `SandboxError` if the sandbox itself fails.

        `number`: of the command, as the caller counts; see `Commands.execute`.
        """
        return await self._commands.execute(call, number)

    async def execute_if(
        self, call: ToolCall, guard: Guard, wanted: Callable[[], bool] | None = None
    ) -> Observation | Refused:
        """As `GuardedSandbox.execute_if`; cancelled while it runs, it is killed. `wanted`: see `Commands`."""
        return await self._commands.execute_if(call, guard, wanted)

    def listen(self, hear: Hear) -> None:
        """As `StreamingSandbox.listen`: of each command's stdout the first 32 KiB, in whole lines."""
        self._commands.hear = hear

    async def run(self, call: ToolCall) -> CommandResult:
        """Run it before the canonical rule, for those who use no guards: afterwards none holds."""
        async with self.turn:
            self._commands.history.begin()
            return await self._run(call, None)

    async def _perform(self, call: ToolCall, say: Say | None) -> Performed:
        result = await self._run(call, say)
        return Performed(self.observe(result), result.jobs)

    async def _run(self, call: ToolCall, say: Say | None) -> CommandResult:
        command = wire.text(call.command)
        self.log.append(call.command)
        if b"\0" in command:
            return CommandResult(b"", b"bash: the command contains a NUL byte", 126)
        request = [b"run", command, wire.number(self._timeout_s), *([] if say is None else [b"parts"])]
        beginning = Beginning(self._max_characters)

        def on_part(lines: bytes) -> None:
            if say is not None and beginning.add(lines):
                say(beginning.text)

        return _result(await self.requests.ask(request, self._timeout_s + ANSWER_S, on_part))

    def observe(self, result: CommandResult) -> Observation:
        """What the policy sees of it."""
        return canonical.observe(
            result.stdout,
            result.stderr,
            exit_code=result.exit_code,
            max_characters=self._max_characters,
            clipped=result.clipped,
            timed_out_after_s=self._timeout_s if result.timed_out else None,
            state_lost=result.state_lost,
        )

    async def tree(self) -> Tree:
        async with self.turn:
            answer = await self.requests.ask([b"tree", wire.number(self._limits.tree_bytes)])
        flat = answer[1:]
        return {
            path.decode("utf-8", "surrogateescape"): Entry(EntryKind(kind.decode()), int(mode), content)
            for path, kind, mode, content in zip(flat[0::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
        }


def _result(answer: Frame) -> CommandResult:
    _, code, flags, stdout, stderr = answer
    return CommandResult(
        stdout,
        stderr,
        int(code),
        clipped=b"k" in flags,
        timed_out=b"t" in flags,
        state_lost=b"s" in flags,
        jobs=b"j" in flags,
    )
