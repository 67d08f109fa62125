"""What a session did and when: spans for timelines, one record per settled turn, token counts. Nothing acts on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from obsspec.values import Outcome


class SpanKind(StrEnum):
    GENERATE = "generate"
    PREDICT = "predict"


class Fate(StrEnum):
    KEPT = "kept"
    DISCARDED = "discarded"
    FAILED = "failed"


@dataclass(slots=True)
class Span:
    """One piece of work. Times are seconds on the event loop's clock; `end_s` is None while it runs."""

    kind: SpanKind
    level: int
    start_s: float
    speculative: bool
    end_s: float | None = None
    fate: Fate | None = None
    reason: str = ""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Attempted:
    """The outcome of one committed turn with a tool call."""

    level: int
    command: str
    outcome: Outcome
    source: str
    confidence: float
    branches: int
    prediction_s: float | None  # latency of the prediction, None when none arrived
    detail: str = ""  # why it failed


@dataclass(slots=True)
class SpeculationReport:
    """Everything counted in one session. `discarded_policy_tokens` includes generations cancelled midway."""

    attempts: list[Attempted] = field(default_factory=list[Attempted])
    spans: list[Span] = field(default_factory=list[Span])
    discarded_policy_tokens: int = 0
    realized_depth: int = 0
    predictions_started: int = 0
    learning_errors: int = 0
