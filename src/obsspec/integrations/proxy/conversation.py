"""One conversation: drives the controller with the client's requests, and hands it running answers as streams of bytes.

The loop is the client, which is not ours: its tools' results are only seen when it sends its next request. So a turn is
observed and the next generation requested in the same moment, and no tool ever runs ahead of its turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio
from anyio import TaskHandle

from obsspec.integrations.proxy.asked import Asked, Route
from obsspec.integrations.proxy.parts import Parts
from obsspec.integrations.proxy.reply import Reply, ReplyReader
from obsspec.integrations.proxy.stream import Start, Stream
from obsspec.integrations.proxy.upstream import UpstreamError, answer_headers
from obsspec.integrations.proxy.wire import Headers
from obsspec.protocols import Continuation, WorldModel
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
from obsspec.values import Completion, Context, GenerationKey, Observation, Prediction

_WOULD_START = (Why.OPEN, Why.WORTH)


class Turns(Continuation, Protocol):
    """The rules of a conversation, with its requests and answers in their terms."""

    def key(self, asked: Asked) -> GenerationKey: ...

    def body(self, key: GenerationKey) -> bytes:
        """The request that this is the key of."""
        ...

    def completed(self, reply: Reply) -> Completion: ...

    def follows(self, completion: Completion, asked: Asked, turns: int) -> bool:
        """Does the request go on from this answer, which came after `turns` units?"""
        ...

    def observed(self, key: GenerationKey, completion: Completion, asked: Asked) -> tuple[Observation, ...] | None:
        """What the tools answered, None if that is not to be seen. `follow` knows the request by these from now on."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """A client that waits for `stream`, which is another one after the request had to be made again.

    `early`: it was under way before the client asked for it. `fixed`: some of it was passed on, so that whatever
    happens to it from now on happens to the client.
    """

    body: bytes
    stream: Stream = field(default_factory=Stream)
    early: bool = False
    fixed: bool = False


@dataclass(slots=True)
class _Work:
    """What runs, or ran, for one node."""

    key: GenerationKey
    headers: Headers
    speculative: bool  # nobody has asked for it yet
    start_s: float
    stream: Stream = field(default_factory=Stream)
    reader: ReplyReader | None = None
    pumping: TaskHandle[None] | None = None
    predicting: TaskHandle[None] | None = None
    end_s: float | None = None
    lead_s: float = 0.0  # how long before the client asked for it, it was started, or would have been
    error: str = ""  # of the world model
    would_start_s: dict[int, float] = field(default_factory=dict[int, float])  # by candidate, in shadow mode
    held: int = 0  # bytes that count against the limit


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
        self._work: dict[int, _Work] = {}
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
        if head.id in self._work:
            self._claim(self._work[head.id], call)
        self._run(commands)
        if learnt is not None:
            self._parts.tasks.start_soon(self._learn, *learnt, name="learn")
        return call

    def gave_up(self, call: Call) -> None:
        """The client left before its answer was complete."""
        if self._call is call:
            self._parts.figures.client_gone += 1
            self._abandon()

    def close(self) -> None:
        """Everything that runs is cancelled, and gone once its tasks have come to it."""
        if not self._closed:
            self._closed = True
            self._call = None
            self._run(self._controller.closed())

    def check_quiescent(self) -> None:
        """After `close`."""
        if self._controller.nodes or self._work:
            raise AssertionError(f"not quiescent: {self._controller.nodes} nodes, {len(self._work)} works")

    def _observe(self, asked: Asked) -> tuple[Context, tuple[Observation, ...]] | None:
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

    async def _learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """In a task of its own, after that of the request: learning never delays an answer."""
        self._world.learn(context, observations)

    def _named(self, context: Context) -> Context:
        return replace(context, task_id=self._image, image=self._image)

    def _claim(self, work: _Work, call: Call) -> None:
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
        work = _Work(command.key, self._asked.headers, command.speculative, now)
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
        work.pumping = self._parts.tasks.start_soon(
            self._pump, command.node, work, self._asked.target, body, name="pump"
        )

    def _start_prediction(self, node: int) -> None:
        context = self._controller.context(node)
        work = self._work[node]
        assert context is not None
        work.predicting = self._parts.tasks.start_soon(self._predict, node, work, self._named(context), name="predict")

    def _discard(self, node: int) -> None:
        work = self._work.pop(node)
        tokens = work.reader.tokens if work.reader is not None else 0
        if work.speculative:
            self._parts.figures.discarded += 1
            self._parts.figures.discarded_tokens += tokens
        if work.end_s is None:
            self._ended(work, finished=False)
            _cancel(work.pumping)
        self._let_go(work)
        work.stream.fail("discarded")
        _cancel(work.predicting)

    def _let_go(self, work: _Work) -> None:
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
            if said.matched:
                figures.would_match += 1
                self._shadow_lead_s = self.asked_s - work.would_start_s.get(number, self.asked_s)

    def _decided(self, command: Decided) -> None:
        decision = command.decision
        would = decision.what is What.START and not decision.allowed and decision.why in _WOULD_START
        if would and command.candidate is not None:
            self._work[command.node].would_start_s[command.candidate] = anyio.current_time()

    # Work -----------------------------------------------------------------------------------------------------------

    async def _pump(self, node: int, work: _Work, target: bytes, body: bytes) -> None:
        """From the engine to the stream. Cancelled: the connection is closed."""
        try:
            async with self._parts.upstream.send("POST", target, work.headers, body) as answer:
                why = await self._pass(work, answer.status_code, answer_headers(answer), answer.aiter_raw())
        except UpstreamError as error:
            self._parts.figures.upstream_errors += 1
            why = str(error)
        if self._work.get(node) is work:
            self._finish(node, work, why)

    async def _pass(self, work: _Work, status: int, headers: Headers, chunks: AsyncIterator[bytes]) -> str:
        """Why nothing can be built on the answer, "" if something can."""
        if work.speculative and status != 200:
            return f"status {status}"
        work.reader = ReplyReader(self._route, headers)
        work.stream.begin(Start(status, headers))
        async for chunk in chunks:
            work.reader.feed(chunk)
            work.stream.write(chunk)
            if work.speculative and not self._hold(work, len(chunk)):
                return "too much is held"
            await work.stream.room()
        work.stream.end()
        return "" if status == 200 else f"status {status}"

    def _hold(self, work: _Work, size: int) -> bool:
        work.held += size
        self._parts.limits.held += size
        return self._parts.limits.held <= self._parts.limits.max_held

    def _finish(self, node: int, work: _Work, why: str) -> None:
        """The engine's part is over. What went wrong with a request that nobody has asked for is nobody's business."""
        completion = self._read(work) if not why else None
        if completion is None:
            work.stream.fail(why or "not understood")
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

    def _read(self, work: _Work) -> Completion | None:
        reply = work.reader.reply() if work.reader is not None else None
        try:
            return self._turns.completed(reply) if reply is not None else None
        except Exception:  # noqa: BLE001 - typed: an answer that is passed on, and nothing is built on it
            return None

    def _ended(self, work: _Work, *, finished: bool) -> None:
        work.end_s = anyio.current_time()
        tokens = work.reader.tokens if work.reader is not None else 0
        self._parts.gate.saw(GenerationEnded(id(work), work.end_s, tokens, finished))

    def _account(self, work: _Work) -> None:
        """The client has asked for it, and it is complete."""
        assert work.end_s is not None
        seconds = work.end_s - work.start_s
        self._parts.figures.generation_s += seconds
        self._parts.figures.hidden_s += min(work.lead_s, seconds)

    async def _predict(self, node: int, work: _Work, context: Context) -> None:
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
