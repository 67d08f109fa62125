"""The values that travel between the parts: frozen, slotted, free of behaviour that could drift between arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

Tokens = tuple[int, ...]


class FinishReason(StrEnum):
    """Why the engine stopped a generation."""

    STOP = "stop"  # a stop token was sampled; it is the last of the returned ids
    LENGTH = "length"  # `max_tokens` were sampled


class StopReason(StrEnum):
    """Why a rollout ended. Every dispatched rollout ends with exactly one."""

    FINAL = "final"  # the policy gave its final answer
    TURN_LIMIT = "turn_limit"  # `max_turns` committed turns
    CONTEXT_LIMIT = "context_limit"  # the next prompt leaves no room for one more token
    CUT = "cut"  # a turn hit its token limit; a cut call is never executed
    EMPTY = "empty"  # the engine returned no token
    ENGINE_ERROR = "engine_error"
    SANDBOX_ERROR = "sandbox_error"
    RENDER_ERROR = "render_error"
    CANCELLED = "cancelled"

    @property
    def is_error(self) -> bool:
        """A part failed: the rollout says nothing about the policy, and is made again when a run is resumed."""
        return self in (StopReason.ENGINE_ERROR, StopReason.SANDBOX_ERROR, StopReason.RENDER_ERROR)


class Outcome(StrEnum):
    """What became of the attempt to predict the observation of one committed turn with a tool call."""

    MATCH = "match"  # predicted in time, equal
    ROLLBACK = "rollback"  # predicted in time, different
    CANCEL = "cancel"  # the tool finished before the prediction
    GATED = "gated"  # not attempted: not allowed to, or nothing to say
    FAILED = "failed"  # the world model failed or gave nothing usable


class Priority(StrEnum):
    COMMITTED = "committed"
    SPECULATIVE = "speculative"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every field that may change what is sampled. Part of the generation key; never mutated, never shared as a dict.

    `seed` is a function of (rollout, turn) alone (`obsspec.rollout.rules.turn_seed`). `temperature` 0 is greedy.
    `model` names the model or adapter at the engine; "" is the engine's only model.
    """

    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    stop_token_ids: Tokens = ()
    top_p: float = 1.0
    model: str = ""


@dataclass(frozen=True, slots=True)
class GenerationKey:
    """What identifies one policy call: all prompt ids and every sampling field.

    `weight_version` is set only under `strict_version`: then a call started on other weights never has the same key.
    """

    prompt: Tokens
    sampling: Sampling
    weight_version: str | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds on the monotonic clock of the client: request sent, first token seen, last token seen."""

    sent_s: float
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled ids, one logprob (natural log, under the sampling distribution's temperature-1 softmax) for each.

    `weight_version` is pinned by the policy client when the request is sent and never read again.
    `timing` is not compared: two completions are equal when what was sampled is equal.
    """

    token_ids: Tokens
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: str = ""
    timing: Timing | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call. The parsed form is for execution only, never for a prompt."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def command(self) -> str:
        """The shell command of a terminal call, byte for byte what the policy wrote."""
        return str(self.arguments.get("command", ""))


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one tool call. `text` is canonical and complete: what the policy sees, all flags included in it.

    The other fields describe the same result for logs and checks; matching never looks at them.
    """

    text: str
    exit_code: int | None = None
    truncated: bool = False
    timed_out: bool = False
    state_lost: bool = False
    empty: bool = False  # the tool printed nothing
    raw: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition of a call that was sent ahead: it runs as command number `after` + 1, or not at all.

    `digest` is of all commands before it and what they answered (`obsspec.history`): it holds exactly if a sequential
    loop, having seen this history, would send the call next.
    """

    after: int
    digest: str


class Refusal(StrEnum):
    """Why a guarded call did not run."""

    HISTORY = "history"  # other commands ran before, or they answered something else
    STATE = "state"  # the last command timed out, lost shell state or left jobs: the next one is not to come early
    WITHDRAWN = "withdrawn"  # nobody waited for it any more


@dataclass(frozen=True, slots=True)
class Refused:
    """A guarded call that did not run, and will not."""

    why: Refusal


@dataclass(frozen=True, slots=True)
class Turn:
    """A parsed generation: tool calls, or a final answer, or an error that is shown to the policy, or a stop."""

    calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    error: str | None = None  # malformed call: becomes an error observation, nothing is executed
    stop: StopReason | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """The calls of one turn and their observations, in call order."""

    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A candidate for all observations of one turn, from `source`, right with probability `confidence` (0..1).

    `tentative`: a better one may come, which then takes its place if there is no room for both.
    """

    observations: tuple[Observation, ...]
    source: str
    confidence: float
    version: str = ""
    tentative: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a world model may know: the policy's own token history and the exchanges before this turn.

    `image` identifies the state that the rollout started from; rollouts of one image see the same world until they
    change it. The state before this turn is a function of (image, calls of `history`). The first `committed` exchanges
    of `history` are real, the others are predicted.
    """

    prompt: Tokens
    completion: Tokens
    calls: tuple[ToolCall, ...]
    history: tuple[Exchange, ...] = ()
    task_id: str = ""
    image: str = ""
    committed: int = 0


class EngineError(Exception):
    """An engine failed to answer. `retryable` says whether the same request may be sent again."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class PredictionCutError(EngineError):
    """Every prediction of a turn was longer than the world model may write."""


class SandboxError(Exception):
    """The sandbox itself failed (not the command in it)."""


class RenderError(Exception):
    """A renderer could not produce a prompt that extends the previous one."""


class ConfigError(Exception):
    """Wrong configuration or a missing part of the machine: one line that names the thing and the fix."""
