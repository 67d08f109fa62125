"""The async driver of one rollout's speculation: runs the controller's commands and feeds the results back.

A session hands out a policy client and wraps a sandbox; an ordinary sequential loop that uses them is sped up without
knowing it. Everything a session starts lives in one task group and is gone when the session's context is left.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio
from anyio.abc import TaskGroup

from obsspec.protocols import (
    Continuation,
    GuardedSandbox,
    OnTokens,
    Policy,
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
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import ToolEnded
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.speculation.settings import SpeculationSettings
from obsspec.speculation.trace import SpeculationReport
from obsspec.speculation.works import Works
from obsspec.values import (
    Completion,
    Context,
    GenerationKey,
    Observation,
    Prediction,
    Sampling,
    Tokens,
    ToolCall,
)


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
        self._waiter: _Waiter | None = None
        self._handed_s = 0.0  # when the head's turn was handed to the loop
        self._seen: list[Observation] = []  # of the committed turn so far
        self._ahead: Ahead | None = None
        self._shortened = False  # a call of the committed turn was sent ahead
        self._called_s = 0.0  # since when the head's tools have been under way: from before, if sent ahead
        self.report = SpeculationReport()
        self._works = Works(policy, world_model, self, settings=settings, gate=gate, tasks=tasks, report=self.report)
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
        works, controller = self._works, self._controller
        for command in commands:
            match command:
                case Generate(node, key, speculative):
                    works.generate(node, controller.level(node), key, speculative=speculative)
                case Promote(node):
                    works.promote(node)
                case Predict(node):
                    context = controller.context(node)
                    assert context is not None
                    works.predict(node, self._named(context))
                case CancelPrediction(node):
                    works.cancel_prediction(node)
                case ExecuteGuarded(node, call, guard):
                    assert self._ahead is not None
                    self._ahead.send(node, controller.level(node), call, guard)
                case HandOver(node, completion):
                    works.keep(node)
                    self._hand_over(node, completion)
                case HandOverFailure(node):
                    self._answer(None, works.error(node))
                case Discard(node, reason):
                    works.discard(node, reason)
                    self._withdraw(node, reason)
                case Release(node):
                    works.release(node)
                    self._withdraw(node, "not asked for")
                case Settle():
                    works.settle(command)
                case Decided():
                    self.report.decisions.append(command.decision)

    def _hand_over(self, node: int, completion: Completion) -> None:
        self._seen = []
        self._shortened = False
        self._handed_s = anyio.current_time()
        sent_s = self._ahead.sent_s(node) if self._ahead is not None else None
        self._called_s = self._handed_s if sent_s is None else sent_s
        self._answer(completion, None)

    def _answer(self, completion: Completion | None, error: Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        assert waiter is not None
        waiter.completion, waiter.error = completion, error
        waiter.done.set()

    def _withdraw(self, node: int, reason: str) -> None:
        if self._ahead is not None:
            self._ahead.withdraw(node, reason)

    # Results ----------------------------------------------------------------------------------------------------

    def completed(self, node: int, completion: Completion) -> None:
        self._run(self._controller.completed(node, completion))

    def generation_failed(self, node: int) -> None:
        self._run(self._controller.generation_failed(node))

    def predicted(self, node: int, prediction: Prediction) -> int:
        elapsed_s = anyio.current_time() - self._called_s
        self._run(self._controller.predicted(node, prediction, self._version(), elapsed_s))
        return self._controller.candidates(node)

    def prediction_ended(self, node: int, *, failed: bool) -> None:
        self._run(self._controller.prediction_ended(node, failed=failed))

    def _version(self) -> str | None:
        return self._engine.weight_version if self._settings.strict_version else None

    # The end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Drop everything that is not handed over. What runs is cancelled, not yet gone: the task group waits."""
        self._run(self._controller.closed())
        self.report.realized_depth = self._controller.deepest

    def check_quiescent(self) -> None:
        """After the task group has ended: no node, no running work."""
        left = (self._controller.nodes, self._works.open, self._ahead.open if self._ahead else 0)
        if any(left):
            raise AssertionError("not quiescent: {} nodes, {} works, {} calls".format(*left))


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
