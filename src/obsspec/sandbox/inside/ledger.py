"""The order of the commands of one sandbox at a provider: who runs now, who waits, who is refused. No I/O.

The rules are those of `sandbox.commands`: one command at a time, plain ones in the order they came, guarded ones when
their guard holds on the chain of everything before, each at most once. Beside them, every request has an id, because
the way to here loses and repeats messages: what is asked again under the same id gets the same answer and never runs
again, and what was withdrawn before it came never runs at all.
"""

from __future__ import annotations

from obsspec import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

KEPT = 64  # answers that may be asked for again: more than are ever under way
WITHDRAWN = "withdrawn"


class Request:
    """One command. `guard` is None for a plain one; `number` is what its sender takes its number to be."""

    def __init__(self, id: int, command: str, number: int, guard: tuple[int, str] | None) -> None:
        self.id = id
        self.command = command
        self.number = number
        self.guard = guard

    def is_same(self, other: Request) -> bool:
        """Asked again under another id: a guarded command runs once."""
        return (self.guard, self.command) == (other.guard, other.command)


class Ledger:
    """Requests and what came of them. `interrupted` says that the command that runs is to be killed."""

    def __init__(self) -> None:
        self.running: Request | None = None
        self.interrupted = False
        self.broken = ""  # why the sandbox answers nothing any more
        self._chain = chain.Chain()
        self._waiting: list[Request] = []
        self._withdrawn: set[int] = set()
        self._answers: dict[int, dict[str, Any]] = {}  # by id, the oldest first
        self._forgotten = 0  # no id up to this one is known any more
        self._ran: dict[int, Request] = {}  # guarded commands that began, by their number
        self._came_to: dict[int, dict[str, Any]] = {}  # what they came to

    def ask(self, request: Request) -> None:
        """A request has come, perhaps again. Its answer is in `answer` at once, or later."""
        if request.id in self._answers or self._is_open(request.id) or request.id <= self._forgotten:
            return
        if self.broken:
            self._answer(request, {"error": self.broken})
        elif request.id in self._withdrawn:
            self._answer(request, _withdrawal(request))
        else:
            self._waiting.append(request)
            self._settle_without_turn()

    def withdraw(self, ids: Iterable[int]) -> None:
        """Nobody wants these: what waits never runs, a plain command that runs is killed, a guarded one goes on."""
        for id in ids:
            self._withdrawn.add(id)
            for request in [one for one in self._waiting if one.id == id]:
                self._waiting.remove(request)
                self._answer(request, _withdrawal(request))
            if self.running is not None and self.running.id == id and self.running.guard is None:
                self.interrupted = True

    def answer(self, id: int) -> dict[str, Any] | None:
        """None: not yet."""
        if id in self._answers:
            return self._answers[id]
        if self._is_open(id):
            return None
        return {"error": self.broken or f"the answer to request {id} is not kept any more"}

    def _is_open(self, id: int) -> bool:
        return any(id == one.id for one in (*self._waiting, self.running) if one is not None)

    def start(self) -> Request | None:
        """Settle what can be settled; a request that is to run now, if there is one. It runs until `end`."""
        self._settle_without_turn()
        if self.running is not None:
            return None
        request = self._next_plain() or self._next_guarded()
        self._settle_without_turn()
        return request

    def end(self, answer: dict[str, Any], *, text: str, settled: bool) -> None:
        """The command that ran has answered; `text` is what the policy sees."""
        request = self.running
        assert request is not None
        if not self.interrupted:
            self._chain.end(request.command, text, settled=settled)
        else:
            answer = _withdrawal(request)
        self._finish(request, answer)

    def fail(self, why: str) -> None:
        """The sandbox itself has failed, whatever was running. Nothing runs any more."""
        self.broken = why
        if self.running is not None:
            self._finish(self.running, {"error": why})
        for request in self._waiting:
            self._answer(request, {"error": why})
        self._waiting.clear()

    def _next_plain(self) -> Request | None:
        while plain := [one for one in self._waiting if one.guard is None]:
            request = plain[0]
            self._waiting.remove(request)
            objection = self._objection(request)
            if not objection:
                return self._begin(request)
            self._answer(request, {"error": objection})
        return None

    def _objection(self, request: Request) -> str:
        """A guarded command took the place of this one. (None is ever cut off, unless the sandbox fails with it.)"""
        if request.number <= self._chain.number:
            return f"command {request.number} is not this one: another was sent ahead and ran"
        return ""

    def _next_guarded(self) -> Request | None:
        for request in list(self._waiting):
            assert request.guard is not None
            judgement = self._chain.judge(*request.guard)
            if judgement == chain.WAIT:
                continue
            self._waiting.remove(request)
            if judgement == chain.RUN:
                return self._begin(request)
            self._answer(request, {"refused": self._chain.refusal(*request.guard)})
        return None

    def _settle_without_turn(self) -> None:
        """Calls that ran already, and those whose number has passed, need not wait for the command that runs."""
        for request in list(self._waiting):
            if request.guard is None or request.guard[0] >= self._chain.number:
                continue
            number = request.guard[0] + 1
            ran = self._ran.get(number)
            if ran is None or not ran.is_same(request):
                answer = {"refused": chain.OTHER_HISTORY}
            elif number in self._came_to:
                answer = self._came_to[number]
            else:
                continue  # it runs
            self._waiting.remove(request)
            self._answer(request, answer)

    def _begin(self, request: Request) -> Request:
        self.running, self.interrupted = request, False
        number = self._chain.begin()
        if request.guard is not None:
            self._ran[number] = request
            self._ran.pop(number - KEPT, None)
            self._came_to.pop(number - KEPT, None)
        return request

    def _finish(self, request: Request, answer: dict[str, Any]) -> None:
        self.running, self.interrupted = None, False
        if request.guard is not None:
            self._came_to[self._chain.number] = answer
        self._answer(request, answer)

    def _answer(self, request: Request, answer: dict[str, Any]) -> None:
        self._answers[request.id] = answer
        while len(self._answers) > KEPT:
            oldest = min(self._answers)
            self._forgotten = max(self._forgotten, oldest)
            del self._answers[oldest]
            self._withdrawn = {id for id in self._withdrawn if id > oldest}


def _withdrawal(request: Request) -> dict[str, Any]:
    return {"error": "cancelled"} if request.guard is None else {"refused": WITHDRAWN}
