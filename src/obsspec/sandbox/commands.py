"""The order of the commands of one sandbox: one at a time, and guarded ones when their guard holds, each once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anyio

from obsspec.history import History, Judgement
from obsspec.protocols import Hear
from obsspec.values import Guard, Observation, Refusal, Refused, SandboxError, ToolCall

KEPT = 32  # answers of guarded calls that may be asked for again: more than are ever under way


@dataclass(frozen=True, slots=True)
class Performed:
    """What one command came to. `jobs`: processes of this or an earlier command still run."""

    observation: Observation
    jobs: bool = False


Say = Callable[[str], None]  # called with what the observation's text is certain to begin with
Perform = Callable[[ToolCall, Say | None], Awaitable[Performed]]


@dataclass(slots=True)
class _Ran:
    """A guarded call that began. `answer` is kept for those who ask again."""

    guard: Guard
    call: ToolCall
    answer: Observation | SandboxError


class Commands:
    """Runs commands with `perform`, never two at a time. Cancelling the caller cancels what it runs."""

    def __init__(self, perform: Perform) -> None:
        self.turn = anyio.Lock(fast_acquire=True)  # held by whoever uses the sandbox
        self.history = History()
        self.hear: Hear | None = None  # as in `StreamingSandbox.listen`
        self._perform = perform
        self._ran: dict[int, _Ran] = {}  # by number
        self._news = anyio.Event()

    async def execute(self, call: ToolCall, number: int | None = None) -> Observation:
        """Run it, whatever was before. `number`: what the caller takes its number to be.

        Raises `SandboxError` if a guarded call has taken that number, or was cut off: then nobody knows the state.
        """
        async with self.turn:
            last = self._ran.get(self.history.number)
            if last is not None and isinstance(last.answer, SandboxError):
                raise SandboxError(f"command {self.history.number} was sent ahead and cut off: {last.answer}")
            if number is not None and number <= self.history.number:
                raise SandboxError(f"command {number} is not this one: another was sent ahead and ran")
            return await self._run(call)

    async def execute_if(
        self, call: ToolCall, guard: Guard, wanted: Callable[[], bool] | None = None
    ) -> Observation | Refused:
        """As `GuardedSandbox.execute_if`. `wanted` is asked when the call would begin: is anybody waiting for it?"""
        while True:
            if guard.after < self.history.number and self._find(call, guard) is None:
                return Refused(Refusal.HISTORY)  # without waiting for the command that runs
            async with self.turn:
                ran = self._find(call, guard)
                if ran is not None:
                    return _answer(ran)
                match self.history.judge(guard):
                    case Judgement.RUN if wanted is None or wanted():
                        return await self._run_ahead(call, guard)
                    case Judgement.RUN:
                        return Refused(Refusal.WITHDRAWN)
                    case Judgement.REFUSE:
                        return Refused(self.history.refusal(guard))
                    case Judgement.WAIT:
                        news = self._news
            await news.wait()

    def _find(self, call: ToolCall, guard: Guard) -> _Ran | None:
        ran = self._ran.get(guard.after + 1)
        return ran if ran is not None and (ran.guard, ran.call) == (guard, call) else None

    async def _run_ahead(self, call: ToolCall, guard: Guard) -> Observation:
        ran = _Ran(guard, call, SandboxError("cancelled while it ran"))
        number = guard.after + 1
        self._ran[number] = ran
        self._ran.pop(number - KEPT, None)
        try:
            ran.answer = await self._run(call)
        except SandboxError as error:
            ran.answer = error
            raise
        return ran.answer

    async def _run(self, call: ToolCall) -> Observation:
        number = self.history.begin()
        say = partial(self.hear, number) if self.hear else None
        try:
            performed = await self._perform(call, say)
            self.history.end(call, performed.observation, jobs=performed.jobs)
        finally:
            news, self._news = self._news, anyio.Event()
            news.set()
        return performed.observation


def _answer(ran: _Ran) -> Observation:
    if isinstance(ran.answer, SandboxError):
        raise SandboxError(str(ran.answer))
    return ran.answer
