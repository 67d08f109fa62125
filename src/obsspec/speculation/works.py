"""What runs for the nodes of one session: generations and predictions, with their spans, counts and ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import anyio
from anyio import TaskHandle
from anyio.abc import TaskGroup

from obsspec.protocols import Policy, Promotes, WorldModel
from obsspec.speculation.commands import Settle
from obsspec.speculation.completions import check_completion
from obsspec.speculation.decisions import Explains, GenerationEnded, GenerationStarted, Settled
from obsspec.speculation.gate import Gate
from obsspec.speculation.settings import SpeculationSettings
from obsspec.speculation.trace import Attempted, Fate, Span, SpanKind, SpeculationReport
from obsspec.values import Completion, Context, GenerationKey, Prediction, Priority


class Results(Protocol):
    """Where results go, as they come."""

    def completed(self, node: int, completion: Completion) -> None: ...

    def generation_failed(self, node: int) -> None: ...

    def predicted(self, node: int, prediction: Prediction) -> int:
        """How many candidates the node has had by now."""
        ...

    def prediction_ended(self, node: int, *, failed: bool) -> None: ...


@dataclass(slots=True)
class _Work:
    """What runs, or ran, for one node."""

    key: GenerationKey
    span: Span
    generating: TaskHandle[None] | None = None
    predicting: TaskHandle[None] | None = None
    predict_span: Span | None = None
    tokens: int = 0
    discarded: bool = False
    error: Exception | None = None
    arrived: list[float] = field(default_factory=list[float])  # when each of its candidates did
    prediction_error: str = ""
    versions: dict[str, str] = field(default_factory=dict[str, str])  # of the weights behind each source


class Works:
    """Owns the work of each node from the command that starts it until it is released or discarded.

    It runs in `tasks`; errors of the parts become typed results, and its end is told to the gate exactly once.
    """

    def __init__(
        self,
        policy: Policy,
        world_model: WorldModel,
        results: Results,
        *,
        settings: SpeculationSettings,
        gate: Gate,
        tasks: TaskGroup,
        report: SpeculationReport,
    ) -> None:
        self._policy = policy
        self._world_model = world_model
        self._results = results
        self._settings = settings
        self._gate = gate
        self._tasks = tasks
        self._report = report
        self._by_node: dict[int, _Work] = {}
        self._running = 0

    @property
    def open(self) -> int:
        return len(self._by_node) + self._running

    # Commands ---------------------------------------------------------------------------------------------------

    def generate(self, node: int, level: int, key: GenerationKey, *, speculative: bool) -> None:
        span = Span(SpanKind.GENERATE, level, anyio.current_time(), speculative)
        self._report.spans.append(span)
        work = self._by_node[node] = _Work(key, span)
        self._gate.saw(GenerationStarted(id(work), span.start_s))
        work.generating = self._tasks.start_soon(self._generate, node, work, name="generate")

    def promote(self, node: int) -> None:
        key = self._by_node[node].key
        if isinstance(self._policy, Promotes):
            self._policy.promote(key.prompt, key.sampling)

    def predict(self, node: int, context: Context) -> None:
        work = self._by_node[node]
        work.predict_span = Span(SpanKind.PREDICT, work.span.level, anyio.current_time(), speculative=True)
        self._report.spans.append(work.predict_span)
        self._report.predictions_started += 1
        work.predicting = self._tasks.start_soon(self._predict, node, work, context, name="predict")

    def cancel_prediction(self, node: int) -> None:
        work = self._by_node[node]
        if work.predicting is not None:
            work.predicting.cancel()
            if not work.arrived:
                _end(work.predict_span, Fate.DISCARDED, "late")
            else:  # it had said something in time, and could have said more
                _end(work.predict_span, Fate.KEPT)

    def keep(self, node: int) -> None:
        """Its completion is handed to the loop."""
        self._by_node[node].span.fate = Fate.KEPT

    def error(self, node: int) -> Exception | None:
        """Why its generation failed."""
        return self._by_node[node].error

    def release(self, node: int) -> None:
        """Everything of it is over."""
        del self._by_node[node]

    def discard(self, node: int, reason: str) -> None:
        """Cancel whatever runs for it; its tokens are wasted."""
        work = self._by_node.pop(node)
        for task in (work.generating, work.predicting):
            if task is not None:
                task.cancel()
        if work.generating is not None:
            self._ended(work, work.tokens, finished=False)
        _end(work.span, Fate.FAILED if work.error else Fate.DISCARDED, reason)
        _end(work.predict_span, Fate.DISCARDED, reason)
        work.discarded = True
        self._report.discarded_policy_tokens += work.tokens

    def settle(self, command: Settle) -> None:
        """The outcome of its turn, for the gate and for the record."""
        work = self._by_node[command.node]
        span = work.predict_span
        standing = [s for s, said in zip(work.arrived, command.said, strict=True) if not said.replaced]
        self._gate.saw(Settled(command.kind, command.outcome, command.said))
        self._report.attempts.append(
            Attempted(
                level=command.level,
                command=" ; ".join(call.command or call.name for call in command.calls),
                outcome=command.outcome,
                source=command.source,
                confidence=command.confidence,
                branches=command.branches,
                prediction_s=standing[0] - span.start_s if span and standing else None,
                detail=work.prediction_error,
                kind=command.kind,
                said=command.said,
                version=work.versions.get(command.source, ""),
            )
        )

    # Tasks ------------------------------------------------------------------------------------------------------

    async def _generate(self, node: int, work: _Work) -> None:
        self._running += 1
        try:
            await self._generate_inside(node, work)
        finally:
            self._running -= 1

    async def _generate_inside(self, node: int, work: _Work) -> None:
        def count(tokens: int) -> None:
            if work.discarded:  # an engine may sample on for a moment after it was told to stop
                self._report.discarded_policy_tokens += tokens - work.tokens
            work.tokens = tokens
            work.span.tokens = tokens

        key, priority = work.key, Priority.SPECULATIVE if work.span.speculative else Priority.COMMITTED
        try:
            completion = await self._policy.generate(key.prompt, key.sampling, priority=priority, on_tokens=count)
            check_completion(completion, key.sampling)
        except Exception as error:  # noqa: BLE001 - becomes a typed outcome: raised in the loop, or a dropped branch
            work.error = error
            if work.generating is not None:
                self._ended(work, work.tokens, finished=False)
            _end(work.span, Fate.FAILED, type(error).__name__)
            self._results.generation_failed(node)
            return
        count(len(completion.token_ids))
        if work.generating is not None:
            own = completion.timing is None or completion.timing.sent_s >= work.span.start_s
            # one that was under way before the session asked for it says nothing about speed
            self._ended(work, work.tokens if own else 0, finished=own)
        work.span.end_s = anyio.current_time()
        self._results.completed(node, completion)

    def _ended(self, work: _Work, tokens: int, *, finished: bool) -> None:
        """Its generation is over, in whatever way; said once."""
        work.generating = None
        failed = work.error is not None
        self._gate.saw(GenerationEnded(id(work), anyio.current_time(), tokens, finished, failed))

    async def _predict(self, node: int, work: _Work, context: Context) -> None:
        self._running += 1
        try:
            await self._predict_inside(node, work, context)
        finally:
            if isinstance(self._world_model, Explains):
                self._report.decisions += self._world_model.take_decisions()
            self._running -= 1

    async def _predict_inside(self, node: int, work: _Work, context: Context) -> None:
        def emit(prediction: Prediction) -> None:
            now = anyio.current_time()
            work.versions[prediction.source] = prediction.version
            known = self._results.predicted(node, prediction)
            work.arrived += [now] * (known - len(work.arrived))

        try:
            with anyio.fail_after(self._settings.predict_timeout_s):
                await self._world_model.predict(context, self._settings.breadth, emit)
        except Exception as error:  # noqa: BLE001 - becomes a typed outcome: the turn's attempt failed
            work.prediction_error = f"{type(error).__name__}: {error}"
        work.predicting = None
        _end(work.predict_span, Fate.FAILED if work.prediction_error else Fate.KEPT, work.prediction_error)
        self._results.prediction_ended(node, failed=bool(work.prediction_error))


def _end(span: Span | None, fate: Fate, reason: str = "") -> None:
    if span is None:
        return
    if span.end_s is None:
        span.end_s = anyio.current_time()
    if span.fate is None:
        span.fate, span.reason = fate, reason
