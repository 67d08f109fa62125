"""The async driver of one rollout's speculation: runs the controller's commands and feeds the results back.

A session hands out a policy client and wraps a sandbox; an ordinary sequential loop that uses them is sped up without
knowing it. Everything a session starts lives in one task group and is gone when the session's context is left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio
from anyio import TaskHandle
from anyio.abc import TaskGroup

from obsspec.protocols import (
    Continuation,
    GuardedSandbox,
    OnTokens,
    Policy,
    Promotes,
    Sandbox,
    StreamingSandbox,
    WorldModel,
)
from obsspec.speculation.ahead import Ahead
from obsspec.speculation.clients import SessionPolicy, SessionSandbox
from obsspec.speculation.commands import (
    CancelPrediction,
    Command,
    Decided,
    Discard,
    ExecuteGuarded,
    Generate,
    HandOver,
    HandOverFailure,
    Predict,
    Promote,
    Release,
    Settle,
)
from obsspec.speculation.completions import check_completion
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import (
    Explains,
    GenerationEnded,
    GenerationStarted,
    Settled,
    ToolEnded,
)
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.speculation.trace import Attempted, Fate, Span, SpanKind, SpeculationReport
from obsspec.values import (
    Completion,
    Context,
    GenerationKey,
    Observation,
    Prediction,
    Priority,
    Sampling,
    Tokens,
    ToolCall,
)


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """`depth` D and `breadth` K as in `Controller`. `predict_timeout_s`: a slower prediction counts as failed.

    `strict_version`: a branch started on other weights than the loop's call would use is not claimed; otherwise a
    weight update between start and commit is accepted, and the tokens keep the version that sampled them.

    `guarded`: calls of unverified turns are sent ahead, if the sandbox can hold them back until their condition is
    known. Only for a loop that does what the continuation says (`run_loop`), and not together with `strict_version`,
    under which a turn may be drawn again.
    """

    depth: int = 1
    breadth: int = 1
    predict_timeout_s: float = 30.0
    strict_version: bool = False
    guarded: bool = False


@dataclass(slots=True)
class _Work:
    """What runs, or ran, for one node; owned by the session from the command that starts it to hand-over or discard."""

    key: GenerationKey
    span: Span
    generating: TaskHandle[None] | None = None
    predicting: TaskHandle[None] | None = None
    predict_span: Span | None = None
    tokens: int = 0
    discarded: bool = False
    error: Exception | None = None
    predicted_s: float | None = None  # when the first candidate arrived that counts
    prediction_error: str = ""
    versions: dict[str, str] = field(default_factory=dict[str, str])  # of the weights behind each source


@dataclass(slots=True)
class _Waiter:
    done: anyio.Event
    completion: Completion | None = None
    error: Exception | None = None


class Session:
    """Use `open_session`. One session serves one rollout, whose loop makes one call at a time."""

    def __init__(
        self,
        policy: Policy,
        world_model: WorldModel,
        continuation: Continuation,
        *,
        settings: SpeculationSettings,
        gate: Gate,
        tasks: TaskGroup,
        task_id: str,
        image: str,
    ) -> None:
        self._engine = policy
        self._world_model = world_model
        self._settings = settings
        self._gate = gate
        self._tasks = tasks
        self._task_id = task_id
        self._image = image
        self._controller = Controller(continuation, gate, depth=settings.depth, breadth=settings.breadth)
        self._work: dict[int, _Work] = {}
        self._waiter: _Waiter | None = None
        self._running = 0
        self._handed_s = 0.0  # when the head's turn was handed to the loop
        self._seen: list[Observation] = []  # of the committed turn so far
        self._ahead: Ahead | None = None
        self._shortened = False  # a call of the committed turn was sent ahead
        self._called_s = 0.0  # since when the head's tools have been under way: from before, if sent ahead
        self.report = SpeculationReport()
        self.policy: Policy = SessionPolicy(self)

    def sandbox(self, inner: Sandbox) -> Sandbox:
        """A client of `inner` that tells the session what the tools of the current turn answered.

        The sandbox must be fresh if calls are sent ahead, or if it streams: its commands are counted.
        """
        wanted = self._settings.guarded and not self._settings.strict_version
        if wanted and isinstance(inner, GuardedSandbox):
            self._ahead = Ahead(inner, self._tasks, self.report)
            self._controller.guarded = True
        if isinstance(inner, StreamingSandbox):
            inner.listen(self.heard)
        return SessionSandbox(self, inner)

    @property
    def weight_version(self) -> str:
        return self._engine.weight_version

    async def generate(self, prompt: Tokens, sampling: Sampling, on_tokens: OnTokens | None) -> Completion:
        """The loop's call. Returns the branch started under the same key, or a fresh generation.

        Cancelled while waiting: the generation is cancelled; calling again draws the same turn again.
        """
        commands = self._controller.requested(GenerationKey(prompt, sampling, self._version()))
        waiter = self._waiter = _Waiter(anyio.Event())
        self._run(commands)
        try:
            await waiter.done.wait()
        except anyio.get_cancelled_exc_class():
            self._waiter = None
            self._run(self._controller.abandoned())
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.completion is not None
        if on_tokens is not None:
            on_tokens(len(waiter.completion.token_ids))
        return waiter.completion

    async def take(self, call: ToolCall) -> Observation | None:
        """The loop makes the next call of the committed turn: what it answered, if it was sent ahead and ran.

        Raises `SandboxError`.
        """
        head = self._controller.head
        if self._ahead is None or head is None:
            return None
        observation = await self._ahead.take(head.id, call)
        if observation is None:
            self._called_s = self._handed_s
        self._shortened = self._shortened or observation is not None
        return observation

    def check_committed(self) -> None:
        """After a loop that ended without an error. Raises `SandboxError` if a call ran that it did not make."""
        if self._ahead is not None:
            self._ahead.check_taken()

    def heard(self, number: int, beginning: str) -> None:
        """The sandbox's command `number` answers something that begins like this."""
        self._run(self._controller.partly_observed(number, beginning))

    def executed(self, observation: Observation) -> None:
        """The next tool call of the committed turn is done. With the last one the turn is observed, and learnt from."""
        head = self._controller.head
        self._seen.append(observation)
        if head is None or head.turn is None or len(self._seen) != len(head.turn.calls):
            return
        context = self._controller.context(head.id)
        if head.kind and not self._shortened:  # what a tool takes is measured where nothing was done about it
            self._gate.saw(ToolEnded(head.kind, anyio.current_time() - self._handed_s))
        self._run(self._controller.observed(self._seen))
        if context is not None:
            self._learn(self._named(context))

    def _named(self, context: Context) -> Context:
        return replace(context, task_id=self._task_id, image=self._image)

    def _learn(self, context: Context) -> None:
        try:
            self._world_model.learn(context, tuple(self._seen))
        except Exception:  # noqa: BLE001 - counted: a world model's trouble is never the rollout's
            self.report.learning_errors += 1

    # Commands ---------------------------------------------------------------------------------------------------

    def _run(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Generate():
                    self._start_generation(command)
                case Promote():
                    self._promote(self._work[command.node].key)
                case Predict():
                    self._start_prediction(command.node)
                case CancelPrediction():
                    self._cancel_prediction(command.node)
                case ExecuteGuarded():
                    self._send_ahead(command)
                case HandOver():
                    self._hand_over(command)
                case HandOverFailure():
                    self._hand_over_failure(command.node)
                case Discard():
                    self._discard(command)
                case Release():
                    self._work.pop(command.node)
                    self._withdraw(command.node, "not asked for")
                case Settle():
                    self._settle(command)
                case Decided():
                    self.report.decisions.append(command.decision)

    def _start_generation(self, command: Generate) -> None:
        span = Span(SpanKind.GENERATE, self._controller.level(command.node), anyio.current_time(), command.speculative)
        self.report.spans.append(span)
        work = self._work[command.node] = _Work(command.key, span)
        self._gate.saw(GenerationStarted(id(work), span.start_s))
        work.generating = self._tasks.start_soon(self._generate, command.node, work, name="generate")

    def _promote(self, key: GenerationKey) -> None:
        if isinstance(self._engine, Promotes):
            self._engine.promote(key.prompt, key.sampling)

    def _start_prediction(self, node: int) -> None:
        context = self._controller.context(node)
        work = self._work[node]
        assert context is not None
        work.predict_span = Span(SpanKind.PREDICT, work.span.level, anyio.current_time(), speculative=True)
        self.report.spans.append(work.predict_span)
        self.report.predictions_started += 1
        context = self._named(context)
        work.predicting = self._tasks.start_soon(self._predict, node, work, context, name="predict")

    def _send_ahead(self, command: ExecuteGuarded) -> None:
        assert self._ahead is not None
        self._ahead.send(command.node, self._controller.level(command.node), command.call, command.guard)

    def _withdraw(self, node: int, reason: str) -> None:
        if self._ahead is not None:
            self._ahead.withdraw(node, reason)

    def _cancel_prediction(self, node: int) -> None:
        work = self._work[node]
        if work.predicting is not None:
            work.predicting.cancel()
            if work.predicted_s is None:
                self._end(work.predict_span, Fate.DISCARDED, "late")
            else:  # it had said something in time, and could have said more
                self._end(work.predict_span, Fate.KEPT)

    def _hand_over(self, command: HandOver) -> None:
        work = self._work[command.node]
        work.span.fate = Fate.KEPT
        self._seen = []
        self._shortened = False
        self._handed_s = anyio.current_time()
        sent_s = self._ahead.sent_s(command.node) if self._ahead is not None else None
        self._called_s = self._handed_s if sent_s is None else sent_s
        self._answer(command.completion, None)

    def _hand_over_failure(self, node: int) -> None:
        self._answer(None, self._work[node].error)

    def _answer(self, completion: Completion | None, error: Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        assert waiter is not None
        waiter.completion, waiter.error = completion, error
        waiter.done.set()

    def _discard(self, command: Discard) -> None:
        work = self._work.pop(command.node)
        for task in (work.generating, work.predicting):
            if task is not None:
                task.cancel()
        if work.generating is not None:
            self._generated(work, work.tokens, finished=False)
        self._end(work.span, Fate.FAILED if work.error else Fate.DISCARDED, command.reason)
        self._end(work.predict_span, Fate.DISCARDED, command.reason)
        self._withdraw(command.node, command.reason)
        work.discarded = True
        self.report.discarded_policy_tokens += work.tokens

    def _settle(self, command: Settle) -> None:
        work = self._work[command.node]
        span = work.predict_span
        self._gate.saw(Settled(command.kind, command.outcome, command.said))
        self.report.attempts.append(
            Attempted(
                level=command.level,
                command=" ; ".join(call.command or call.name for call in command.calls),
                outcome=command.outcome,
                source=command.source,
                confidence=command.confidence,
                branches=command.branches,
                prediction_s=work.predicted_s - span.start_s if span and work.predicted_s is not None else None,
                detail=work.prediction_error,
                kind=command.kind,
                said=command.said,
                version=work.versions.get(command.source, ""),
            )
        )

    def _generated(self, work: _Work, tokens: int, *, finished: bool) -> None:
        """Its generation is over, in whatever way; said once."""
        work.generating = None
        failed = work.error is not None
        self._gate.saw(GenerationEnded(id(work), anyio.current_time(), tokens, finished, failed))

    @staticmethod
    def _end(span: Span | None, fate: Fate, reason: str = "") -> None:
        if span is None:
            return
        if span.end_s is None:
            span.end_s = anyio.current_time()
        if span.fate is None:
            span.fate, span.reason = fate, reason

    # Work -------------------------------------------------------------------------------------------------------

    async def _generate(self, node: int, work: _Work) -> None:
        self._running += 1
        try:
            await self._generate_inside(node, work)
        finally:
            self._running -= 1

    async def _generate_inside(self, node: int, work: _Work) -> None:
        def count(tokens: int) -> None:
            if work.discarded:  # an engine may sample on for a moment after it was told to stop
                self.report.discarded_policy_tokens += tokens - work.tokens
            work.tokens = tokens
            work.span.tokens = tokens

        priority = Priority.SPECULATIVE if work.span.speculative else Priority.COMMITTED
        try:
            completion = await self._engine.generate(
                work.key.prompt, work.key.sampling, priority=priority, on_tokens=count
            )
            check_completion(completion, work.key.sampling)
        except Exception as error:  # noqa: BLE001 - becomes a typed outcome: raised in the loop, or a dropped branch
            work.error = error
            if work.generating is not None:
                self._generated(work, work.tokens, finished=False)
            self._end(work.span, Fate.FAILED, type(error).__name__)
            self._run(self._controller.generation_failed(node))
            return
        count(len(completion.token_ids))
        if work.generating is not None:
            own = completion.timing is None or completion.timing.sent_s >= work.span.start_s
            # one that was under way before the session asked for it says nothing about speed
            self._generated(work, work.tokens if own else 0, finished=own)
        work.span.end_s = anyio.current_time()
        self._run(self._controller.completed(node, completion))

    async def _predict(self, node: int, work: _Work, context: Context) -> None:
        self._running += 1
        try:
            await self._predict_inside(node, work, context)
        finally:
            if isinstance(self._world_model, Explains):
                self.report.decisions += self._world_model.take_decisions()
            self._running -= 1

    async def _predict_inside(self, node: int, work: _Work, context: Context) -> None:
        def emit(prediction: Prediction) -> None:
            now = anyio.current_time()
            work.versions[prediction.source] = prediction.version
            self._run(self._controller.predicted(node, prediction, self._version(), now - self._called_s))
            if work.predicted_s is None and self._controller.candidates(node):
                work.predicted_s = now

        try:
            with anyio.fail_after(self._settings.predict_timeout_s):
                await self._world_model.predict(context, self._settings.breadth, emit)
        except Exception as error:  # noqa: BLE001 - becomes a typed outcome: the turn's attempt failed
            work.prediction_error = f"{type(error).__name__}: {error}"
        work.predicting = None
        self._end(work.predict_span, Fate.FAILED if work.prediction_error else Fate.KEPT, work.prediction_error)
        self._run(self._controller.prediction_ended(node, failed=bool(work.prediction_error)))

    def _version(self) -> str | None:
        return self._engine.weight_version if self._settings.strict_version else None

    # The end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Drop everything that is not handed over. What runs is cancelled, not yet gone: the task group waits."""
        self._run(self._controller.closed())
        self.report.realized_depth = self._controller.deepest

    def check_quiescent(self) -> None:
        """After the task group has ended: no node, no running work."""
        left = (self._controller.nodes, len(self._work), self._running, self._ahead.open if self._ahead else 0)
        if any(left):
            raise AssertionError("not quiescent: {} nodes, {} works, {} tasks, {} calls".format(*left))


@asynccontextmanager
async def open_session(
    policy: Policy,
    world_model: WorldModel,
    continuation: Continuation,
    *,
    settings: SpeculationSettings | None = None,
    gate: Gate | None = None,
    task_id: str = "",
    image: str = "",
) -> AsyncGenerator[Session, None]:
    """A session for one rollout; `image` (the task if not given) identifies the state it starts from.

    Leaving the context, in any way, leaves no request and no task behind.

    An error raised inside the context is re-raised as it is, not as a group.
    """
    error: Exception | None = None
    session: Session | None = None
    try:
        async with anyio.create_task_group() as tasks:
            session = Session(
                policy,
                world_model,
                continuation,
                settings=settings or SpeculationSettings(),
                gate=gate or OpenGate(),
                tasks=tasks,
                task_id=task_id,
                image=image or task_id,
            )
            try:
                yield session
            except Exception as raised:  # noqa: BLE001 - re-raised below, outside the task group that would wrap it
                error = raised
            finally:
                session.close()
                tasks.cancel_scope.cancel()
    finally:
        if session is not None:
            session.check_quiescent()
    if error is not None:
        raise error
