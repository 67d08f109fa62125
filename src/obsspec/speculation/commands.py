"""What the controller asks its driver to do. A driver runs them in order and feeds the results back as events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from obsspec.speculation.decisions import Decision, Said
from obsspec.values import Completion, GenerationKey, Guard, Outcome, ToolCall


class DiscardReason(StrEnum):
    MISMATCH = "mismatch"  # the real observation was another one
    REPLACED = "replaced"  # a better prediction took the place of the one it stands on
    SUPERSEDED = "superseded"  # the loop made another call
    FAILED = "failed"  # its generation failed
    ABANDONED = "abandoned"  # the loop gave its call up
    CLOSED = "closed"  # the session ended


@dataclass(frozen=True, slots=True)
class Generate:
    """Start the generation of `node` on `key`."""

    node: int
    key: GenerationKey
    speculative: bool


@dataclass(frozen=True, slots=True)
class Promote:
    """The loop waits for the generation of `node`, which was started as speculation and has not ended."""

    node: int


@dataclass(frozen=True, slots=True)
class Predict:
    """Ask the world model for the observations of `node`'s turn."""

    node: int


@dataclass(frozen=True, slots=True)
class CancelPrediction:
    """Stop the running prediction of `node`; its result would be ignored."""

    node: int


@dataclass(frozen=True, slots=True)
class ExecuteGuarded:
    """Send the call of `node`'s turn ahead, under the condition that all observations above it are right."""

    node: int
    call: ToolCall
    guard: Guard


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give `completion` to the waiting loop. Sent at most once per node."""

    node: int
    completion: Completion


@dataclass(frozen=True, slots=True)
class HandOverFailure:
    """The waiting loop's generation failed: raise its error in the loop."""

    node: int


@dataclass(frozen=True, slots=True)
class Discard:
    """`node` left the tree: cancel whatever still runs for it; nothing of it may be used."""

    node: int
    reason: DiscardReason


@dataclass(frozen=True, slots=True)
class Release:
    """`node` was handed over and its turn is over: forget it."""

    node: int


@dataclass(frozen=True, slots=True)
class Settle:
    """The outcome of one committed turn with a tool call is known."""

    node: int
    level: int
    calls: tuple[ToolCall, ...]
    outcome: Outcome
    source: str
    confidence: float
    branches: int
    kind: str = ""
    said: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """For the record: the gate decided about `node`, or about candidate number `candidate` for its observation."""

    node: int
    decision: Decision
    candidate: int | None = None


Command = (
    Generate
    | Promote
    | Predict
    | CancelPrediction
    | ExecuteGuarded
    | HandOver
    | HandOverFailure
    | Discard
    | Release
    | Settle
    | Decided
)
