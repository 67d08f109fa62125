"""The four seams of obsspec. Each says what holds under cancellation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from obsspec.values import (
    Completion,
    Context,
    GenerationKey,
    Guard,
    Observation,
    Prediction,
    Priority,
    Refused,
    Sampling,
    StopReason,
    Tokens,
    ToolCall,
    Turn,
)

SEVERAL = "+"  # between the weight versions of engines that serve as one
OnTokens = Callable[[int], None]  # called with the number of tokens sampled so far in this generation


class Policy(Protocol):
    """A model behind token ids: ids in, ids and logprobs out.

    Cancelling `generate` ends the request at the engine promptly, not only at the client. Errors: `EngineError`.
    With a deterministic engine the result is a function of (prompt, sampling, weights) alone.
    """

    @property
    def weight_version(self) -> str:
        """The version that a request sent now would be sampled with.

        While engines that serve as one differ, those of all of them, in their order, with `SEVERAL` between.
        """
        ...

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion: ...


@runtime_checkable
class Promotes(Protocol):
    """A policy whose requests can still change priority, as long as they wait."""

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        """A speculative request for exactly this has become the committed turn. Where none waits, nothing happens."""
        ...


Emit = Callable[[Prediction], None]  # called with each candidate as soon as it is there


class WorldModel(Protocol):
    """A predictor of observations.

    Cancelling `predict` frees whatever it was using. It may raise `EngineError`; it may emit nothing.
    `learn` is called once for each committed turn, in order, after the real observations are known.
    """

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Emits at most `breadth` candidates, each with one observation per call of the turn; returns when done.

        One of them may be tentative: then one more may be emitted, which replaces it.
        """
        ...

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None: ...


class Sandbox(Protocol):
    """Where tools run. Calls are executed one at a time, in the order given.

    Cancelling `execute` kills what the call started. Errors of the sandbox itself: `SandboxError`; a failing
    command is not an error but an observation.
    """

    async def execute(self, call: ToolCall) -> Observation: ...


@runtime_checkable
class GuardedSandbox(Sandbox, Protocol):
    """A sandbox that also takes calls ahead of their turn, each with the condition under which it runs."""

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        """Waits until command number `guard.after` has ended, then runs the call or refuses it. Several may wait.

        The same call with the same guard may be asked again, at the same time or later, and runs once: the answer is
        that of the one run. Cancelled before it runs: it never runs, unless it is asked again. Cancelled while it runs:
        it may go on, but nothing else runs before it has ended, and a command that follows and is not guarded by it
        fails. Errors of the sandbox itself: `SandboxError`; whether the call ran is found out by asking again.
        """
        ...


Hear = Callable[[int, str], None]  # called with a number and a text


@runtime_checkable
class StreamingSandbox(Sandbox, Protocol):
    """A sandbox that tells how an observation begins while its command still runs."""

    def listen(self, hear: Hear) -> None:
        """From now on `hear` is told the number of the command that runs (the sandbox's first is 1) and a text that
        its observation's text is certain to begin with: whatever is still printed, and however it ends.

        A command may be told of any number of times, each with more text, or never; not after it has been answered.
        """
        ...


class Renderer(Protocol):
    """Messages to token ids and back. Prompts only ever grow; sampled ids are never re-encoded.

    Predicted and real observations are encoded by the same `extend`.
    """

    @property
    def stop_token_ids(self) -> Tokens:
        """Ids that end an action when sampled."""
        ...

    @property
    def observation_stop_ids(self) -> Tokens:
        """Ids that end an observation when a world model samples them."""
        ...

    def start(self, instruction: str) -> Tokens: ...

    def parse(self, completion: Completion) -> Turn: ...

    def extend(self, prompt: Tokens, completion: Tokens, observations: Sequence[Observation]) -> Tokens:
        """The whole next prompt: `prompt + completion + frames of the observations`."""
        ...

    def open_observation(self, prompt: Tokens, completion: Tokens, done: Sequence[Observation]) -> Tokens:
        """The prompt on which a language model continues with the text of observation number `len(done)`."""
        ...

    def read_observation(self, token_ids: Tokens) -> str | None:
        """The text a world model wrote after `open_observation`; None if it did not close it."""
        ...


@dataclass(frozen=True, slots=True)
class Followup:
    """What comes after a turn: the whole next prompt, and the call the loop makes on it or why it makes none."""

    prompt: Tokens
    key: GenerationKey | None
    stop: StopReason | None = None


class Continuation(Protocol):
    """The pure rules by which a loop goes from one call to the next; the loop and the session share one object."""

    def parse(self, completion: Completion) -> Turn: ...

    def follow(
        self, level: int, key: GenerationKey, completion: Completion, observations: Sequence[Observation]
    ) -> Followup:
        """What the loop does after turn number `level` (0-based) ends with these observations."""
        ...

    def speculable(self, level: int, turn: Turn) -> bool:
        """False when it is already known that no call can follow turn `level`."""
        ...
