"""Calls of unverified turns that are with the sandbox, guarded: sent, handed to the loop that asks, or withdrawn.

A guard holds exactly if the loop will make the call, so a guarded call that ran is always asked for. Should that ever
fail, it is an error of the rollout and never silent.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from anyio import TaskHandle
from anyio.abc import TaskGroup

from obsspec.protocols import GuardedSandbox
from obsspec.speculation.trace import Fate, Span, SpanKind, SpeculationReport
from obsspec.values import Guard, Observation, Refused, SandboxError, ToolCall


@dataclass(slots=True, eq=False)
class _Sent:
    """`answer` None: not there yet, or lost on the way."""

    call: ToolCall
    guard: Guard
    span: Span
    done: anyio.Event
    asking: TaskHandle[None] | None = None
    answer: Observation | Refused | None = None


class Ahead:
    """The guarded calls of one session, by node; what runs for them lives in `tasks`."""

    def __init__(self, sandbox: GuardedSandbox, tasks: TaskGroup, report: SpeculationReport) -> None:
        self._sandbox = sandbox
        self._tasks = tasks
        self._report = report
        self._sent: dict[int, _Sent] = {}
        self._stray = ""  # what ran, and was not asked for
        self._running = 0

    @property
    def open(self) -> int:
        return len(self._sent) + self._running

    def send(self, node: int, level: int, call: ToolCall, guard: Guard) -> None:
        span = Span(SpanKind.EXECUTE, level, anyio.current_time(), speculative=True)
        self._report.spans.append(span)
        self._report.guarded_sent += 1
        sent = self._sent[node] = _Sent(call, guard, span, anyio.Event())
        sent.asking = self._tasks.start_soon(self._ask_early, sent, name="execute-if")

    def sent_s(self, node: int) -> float | None:
        """When the node's call was sent; None if it was not, or is over."""
        sent = self._sent.get(node)
        return sent.span.start_s if sent is not None else None

    async def take(self, node: int, call: ToolCall) -> Observation | None:
        """The observation of the node's call if it runs ahead, or has run; None if it is still to be run.

        An answer that was lost is asked for again: the sandbox knows whether the call ran. Raises `SandboxError`.
        """
        self.check()
        sent = self._sent.pop(node, None)
        if sent is None:
            return None
        if sent.call != call:
            self._withdraw(sent, "another call was made")
            raise SandboxError(f"the loop made the call `{call.command}` where `{sent.call.command}` was sent ahead")
        try:
            await sent.done.wait()
            answer = sent.answer or await self._ask(sent)
        except BaseException:
            self._withdraw(sent, "given up")
            raise
        if isinstance(answer, Refused):
            return None
        sent.span.fate = Fate.KEPT
        return answer

    def withdraw(self, node: int, reason: str) -> None:
        """The node left the tree, or its turn is over. The sandbox would refuse the call all the same."""
        sent = self._sent.pop(node, None)
        if sent is not None:
            self._withdraw(sent, reason)

    def check(self) -> None:
        """Raises `SandboxError` if a call is known to have run that the loop did not ask for."""
        if self._stray:
            raise SandboxError(f"`{self._stray}` was sent ahead and ran, and the loop did not ask for it")

    def check_taken(self) -> None:
        """At the end of the loop: also what ran and could still have been asked for."""
        for sent in self._sent.values():
            self._note_stray(sent)
        self.check()

    def _withdraw(self, sent: _Sent, reason: str) -> None:
        self._note_stray(sent)
        if sent.asking is not None:
            sent.asking.cancel()
        if sent.span.end_s is None:
            sent.span.end_s = anyio.current_time()
        if sent.span.fate is None:
            sent.span.fate, sent.span.reason = Fate.DISCARDED, reason
        sent.done.set()

    def _note_stray(self, sent: _Sent) -> None:
        if isinstance(sent.answer, Observation):
            self._stray = self._stray or sent.call.command

    async def _ask_early(self, sent: _Sent) -> None:
        self._running += 1
        try:
            await self._ask(sent)
        except Exception as error:  # noqa: BLE001 - lost: asked again when the loop wants it, and raised there
            sent.span.reason = f"lost: {error}"
        finally:
            self._running -= 1
            sent.asking = None
            sent.done.set()

    async def _ask(self, sent: _Sent) -> Observation | Refused:
        answer = sent.answer = await self._sandbox.execute_if(sent.call, sent.guard)
        sent.span.end_s = anyio.current_time()
        if isinstance(answer, Refused):
            self._report.guarded_refused += 1
            sent.span.fate, sent.span.reason = Fate.DISCARDED, f"refused: {answer.why}"
        else:
            self._report.guarded_ran += 1
        return answer
