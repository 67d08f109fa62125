"""One conversation: drives the controller with the client's requests, and hands it running answers as streams of bytes.

The loop is the client, which is not ours: its tools' results are only seen when it sends its next request. So a turn is
observed and the next generation requested in the same moment, and no tool ever runs ahead of its turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio
from anyio import TaskHandle

from obsspec.integrations.proxy.asked import Asked, Route
from obsspec.integrations.proxy.parts import Parts
from obsspec.integrations.proxy.reply import ReplyReader
from obsspec.integrations.proxy.stream import Start
from obsspec.integrations.proxy.upstream import UpstreamError, answer_headers
from obsspec.integrations.proxy.wire import Headers
from obsspec.integrations.proxy.work import Call, Turns, Work
from obsspec.protocols import WorldModel
from obsspec.speculation.commands import (
    CancelPrediction,
    Command,
    Decided,
    Discard,
    Generate,
    HandOver,
    HandOverFailure,
    Predict,
    Promote,
    Release,
    Settle,
)
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import GenerationEnded, GenerationStarted, Settled, ToolEnded, What, Why
from obsspec.values import Completion, Context, Observation, Prediction

_Learnt = tuple[Context, tuple[Observation, ...]]
_WOULD_START = (Why.OPEN, Why.WORTH)


class Conversation:
    """`image` names the state that it starts from. Its client makes one request at a time.

    Everything it starts lives in the task group of the server; `close` cancels all of it.
    """

    def __init__(self, parts: Parts, turns: Turns, world: WorldModel, route: Route, image: str) -> None:
        settings = parts.settings
        self._parts = parts
        self._turns = turns
        self._world = world
        self._route = route
        self._image = image
        self._controller = Controller(turns, parts.gate, depth=settings.depth, breadth=settings.breadth)
        self._work: dict[int, Work] = {}
        self._call: Call | None = None
        self._asked: Asked | None = None
        self._handed_s = self._shadow_lead_s = 0.0
        self._closed = False
        self.asked_s = 0.0
        self.place: tuple[str, bytes, int] | None = None  # where the table has it

    # The client's side ----------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """For the answer to its latest request to be complete."""
        return self._call is not None

    @property
    def size(self) -> int:
        """Bytes of what it remembers."""
        return self._turns.size + (len(self._asked.rest) if self._asked is not None else 0)

    def continued_by(self, asked: Asked) -> bool:
        """Is this what the client sends after its latest answer, or the same again because there was none?"""
        head = self._controller.head
        if self.waits or self._closed:
            return False
        before = self.place[2] if self.place is not None else 0
        if head is None or head.completion is None:
            return len(asked.units) == before
        return self._turns.follows(head.completion, asked, before)

    def ask(self, asked: Asked, body: bytes) -> Call:
        """The client's next request. Its answer is one that was started early under the same key, or a new one."""
        self._asked = asked
        self.asked_s = anyio.current_time()
        self._shadow_lead_s = 0.0
        learnt = self._observe(asked)
        commands = self._controller.requested(self._turns.key(asked))
        head = self._controller.head
        assert head is not None
        call = self._call = Call(body)
        early = self._work.get(head.id)
        if early is not None:
            self._claim(early, call)
            self._learn(learnt)  # before the turn after this one is predicted
        self._run(commands)
        if early is None:
            self._learn(learnt)  # after the request was started
        return call

    def gave_up(self, call: Call) -> None:
        """The client does not read on: it left, or it has its answer."""
        call.stream.fail("the client left")
        if self._call is call:
            self._parts.figures.client_gone += 1
            self._abandon()

    def close(self) -> None:
        """Everything that runs is cancelled, and gone once its tasks have come to it."""
        if not self._closed:
            self._closed = True
            self._call = None
            self._run(self._controller.closed())

    def give_up(self) -> None:
        """Like `close`, after an error of our own, whatever state it has left."""
        self._closed, self._call = True, None
        for work in self._work.values():
            if work.end_s is None:
                self._ended(work, finished=False)
            self._let_go(work)
            work.stream.fail("obsspec lost track of this conversation")
            _cancel(work.pumping)
            _cancel(work.predicting)
        self._work.clear()
        self._controller = Controller(self._turns, self._parts.gate, depth=0, breadth=0)

    def check_quiescent(self) -> None:
        """After `close`."""
        if self._controller.nodes or self._work:
            raise AssertionError(f"not quiescent: {self._controller.nodes} nodes, {len(self._work)} works")

    def _observe(self, asked: Asked) -> _Learnt | None:
        """What the request says of the turn before it. The result: what the world model is to learn from."""
        head = self._controller.head
        if head is None or head.completion is None:
            return None
        observations = self._turns.observed(head.key, head.completion, asked)
        if not head.has_calls or observations is None:
            return None
        context = self._controller.context(head.id)
        tool_s = self.asked_s - self._handed_s
        self._parts.figures.tool_s += tool_s
        if head.kind:
            self._parts.gate.saw(ToolEnded(head.kind, tool_s))
        self._run(self._controller.observed(observations))
        return None if context is None else (self._named(context), observations)

    def _learn(self, learnt: _Learnt | None) -> None:
        """In a task of its own: whoever waits for an answer does not wait for this."""

        async def learn(context: Context, observations: tuple[Observation, ...]) -> None:
            try:
                self._world.learn(context, observations)
            except Exception:  # noqa: BLE001 - typed: nothing is learnt, and the answer comes all the same
                self._parts.figures.confused += 1

        if learnt is not None:
            self._start(partial(learn, *learnt), "learn")

    def _named(self, context: Context) -> Context:
        return replace(context, task_id=self._image, image=self._image)

    def _claim(self, work: Work, call: Call) -> None:
        work.lead_s = self.asked_s - work.start_s
        self._let_go(work)
        call.stream, call.early = work.stream, True
        self._parts.figures.claimed += 1
        if work.end_s is not None:
            self._account(work)

    def _abandon(self) -> None:
        self._call = None
        self._run(self._controller.abandoned())

    # Commands -------------------------------------------------------------------------------------------------------

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Generate():
                    self._generate(command)
                case Predict():
                    self._start_prediction(command.node)
                case CancelPrediction():
                    _cancel(self._work[command.node].predicting)
                case HandOver() | HandOverFailure():
                    self._call = None
                    self._handed_s = anyio.current_time()
                case Discard():
                    self._discard(command.node)
                case Release():
                    self._work.pop(command.node)
                case Settle():
                    self._settle(command)
                case Decided():
                    self._decided(command)
                case Promote():
                    pass  # the engine has the request, with the priority it was sent with
                case _:
                    raise AssertionError(f"no sandbox is known here: {command}")

    def _generate(self, command: Generate) -> None:
        assert self._asked is not None
        now, call = anyio.current_time(), self._call
        work = Work(command.key, self._asked.headers, command.speculative, now)
        self._work[command.node] = work
        if command.speculative:
            self._parts.figures.started += 1
            self._parts.limits.branches += 1
            body = self._turns.body(self._parts.as_sent(command.key))
        else:
            assert call is not None
            self._parts.figures.restarted += call.early
            call.stream, call.early = work.stream, False
            work.lead_s, body = self._shadow_lead_s, call.body
        self._parts.gate.saw(GenerationStarted(id(work), now))
        work.pumping = self._start(partial(self._pump, command.node, work, self._asked.target, body), "pump")

    def _start_prediction(self, node: int) -> None:
        context = self._controller.context(node)
        work = self._work[node]
        assert context is not None
        work.predicting = self._start(partial(self._predict, node, work, self._named(context)), "predict")

    def _discard(self, node: int) -> None:
        work = self._work.pop(node)
        tokens = work.reader.tokens if work.reader is not None else 0
        if work.speculative:
            self._parts.figures.discarded += 1
            self._parts.figures.discarded_tokens += tokens
        if work.end_s is None or work.speculative:  # of a complete answer the client gets the rest, whatever it is
            work.stream.fail("discarded")
            _cancel(work.pumping)
        if work.end_s is None:
            self._ended(work, finished=False)
        self._let_go(work)
        _cancel(work.predicting)

    def _let_go(self, work: Work) -> None:
        """It counts as speculative no longer."""
        if work.speculative:
            work.speculative = False
            self._parts.limits.branches -= 1
            self._parts.limits.held -= work.held
            work.held = 0

    def _settle(self, command: Settle) -> None:
        work, figures = self._work[command.node], self._parts.figures
        self._parts.gate.saw(Settled(command.kind, command.outcome, command.said))
        if self._closed:
            return  # the client never came back: nothing is known of its tools
        figures.outcomes[command.outcome] += 1
        for number, said in enumerate(command.said):
            figures.said(said.source, right=bool(said.matched))
            if said.matched and not said.replaced:
                figures.would_match += 1
                self._shadow_lead_s = self.asked_s - work.would_start_s.get(number, self.asked_s)

    def _decided(self, command: Decided) -> None:
        decision = command.decision
        would = decision.what is What.START and not decision.allowed and decision.why in _WOULD_START
        if would and command.candidate is not None:
            self._work[command.node].would_start_s[command.candidate] = anyio.current_time()

    # Work -----------------------------------------------------------------------------------------------------------

    async def _pump(self, node: int, work: Work, target: bytes, body: bytes) -> None:
        """From the engine to the stream. Cancelled: the connection is closed."""
        try:
            async with self._parts.upstream.send("POST", target, work.headers, body, repeatable=True) as answer:
                await self._pass(node, work, answer.status_code, answer_headers(answer), answer.aiter_raw())
        except UpstreamError as error:
            self._parts.figures.upstream_errors += 1
            work.stream.fail(str(error))
            self._finish(node, work, good=False)

    async def _pass(self, node: int, work: Work, status: int, headers: Headers, chunks: AsyncIterator[bytes]) -> None:
        """The generation is over when the answer is complete, and before its last byte can reach the client, whose next
        request may be there before this connection has come to its end."""
        good = status == 200
        if work.speculative and not good:
            self._finish(node, work, good=False)
            return
        work.reader = ReplyReader(self._route, headers)
        work.stream.begin(Start(status, headers))
        async for chunk in chunks:
            work.reader.feed(chunk)
            work.stream.write(chunk)
            if work.speculative and not self._hold(work, len(chunk)):
                self._parts.figures.overflowed += 1
                self._finish(node, work, good=False)
                return
            if work.reader.is_complete:
                self._finish(node, work, good=good)
            await work.stream.room()
        work.stream.end()
        self._finish(node, work, good=good)

    def _start(self, work: Callable[[], Awaitable[None]], name: str) -> TaskHandle[None]:
        return self._parts.tasks.start_soon(self._guarded, work, name=name)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001 - typed: this conversation is given up, all others go on
            self._parts.figures.confused += 1
            self.give_up()

    def _hold(self, work: Work, size: int) -> bool:
        work.held += size
        self._parts.limits.held += size
        return self._parts.limits.held <= self._parts.limits.max_held

    def _finish(self, node: int, work: Work, *, good: bool) -> None:
        """The engine's part is over; said again, it changes nothing.

        A request that went wrong and that nobody has asked for leaves the tree; one that was started early and asked
        for since is made again, as long as nothing of it was passed on.
        """
        if work.end_s is not None or self._work.get(node) is not work:
            return
        completion = self._read(work) if good else None
        if work.speculative:
            self._parts.limits.fuse.record(failed=completion is None)
        self._ended(work, finished=completion is not None)
        call = self._call
        if completion is not None:
            if not work.speculative:
                self._account(work)
            self._run(self._controller.completed(node, completion))
        elif call is not None and call.stream is work.stream and call.early and call.fixed:
            self._abandon()
        else:
            self._run(self._controller.generation_failed(node))

    def _read(self, work: Work) -> Completion | None:
        reply = work.reader.reply() if work.reader is not None else None
        try:
            return self._turns.completed(reply) if reply is not None else None
        except Exception:  # noqa: BLE001 - typed: an answer that is passed on, and nothing is built on it
            return None

    def _ended(self, work: Work, *, finished: bool) -> None:
        work.end_s = anyio.current_time()
        tokens = work.reader.tokens if work.reader is not None else 0
        self._parts.gate.saw(GenerationEnded(id(work), work.end_s, tokens, finished))

    def _account(self, work: Work) -> None:
        """The client has asked for it, and it is complete."""
        assert work.end_s is not None
        seconds = work.end_s - work.start_s
        self._parts.figures.generation_s += seconds
        self._parts.figures.hidden_s += min(work.lead_s, seconds)

    async def _predict(self, node: int, work: Work, context: Context) -> None:
        def emit(prediction: Prediction) -> None:
            elapsed_s = anyio.current_time() - self._handed_s
            self._run(self._controller.predicted(node, prediction, None, elapsed_s))

        try:
            with anyio.fail_after(self._parts.settings.predict_s):
                await self._world.predict(context, self._parts.settings.breadth, emit)
        except Exception as error:  # noqa: BLE001 - becomes a typed outcome: the turn's attempt failed
            work.error = type(error).__name__
        work.predicting = None
        self._run(self._controller.prediction_ended(node, failed=bool(work.error)))


def _cancel(task: TaskHandle[None] | None) -> None:
    if task is not None:
        task.cancel()
