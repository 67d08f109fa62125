"""What a session did and when: spans for timelines, one record per settled turn, token counts. Nothing acts on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from obsspec.speculation.decisions import Decision, Said
from obsspec.values import Outcome


class SpanKind(StrEnum):
    GENERATE = "generate"
    PREDICT = "predict"
    EXECUTE = "execute"  # a call that was sent ahead, from sending it to its answer


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
    """The outcome of one committed turn with a tool call. `said`: every distinct candidate, started or not."""

    level: int
    command: str
    outcome: Outcome
    source: str
    confidence: float
    branches: int
    prediction_s: float | None  # latency of the prediction, None when none arrived
    detail: str = ""  # why it failed
    kind: str = ""  # class of the command; empty when it was never to be predicted
    said: tuple[Said, ...] = ()
    version: str = ""  # weights of the source

    @property
    def would_match(self) -> bool:
        """A candidate stood in time and was equal, whether or not it was allowed to start anything."""
        return any(said.matched and not said.replaced for said in self.said)


@dataclass(slots=True)
class SpeculationReport:
    """Everything counted in one session. `discarded_policy_tokens` includes generations cancelled midway.

    Of the calls that were sent ahead, guarded, those that neither ran nor were refused were withdrawn.
    """

    attempts: list[Attempted] = field(default_factory=list[Attempted])
    spans: list[Span] = field(default_factory=list[Span])
    decisions: list[Decision] = field(default_factory=list[Decision])
    discarded_policy_tokens: int = 0
    realized_depth: int = 0
    predictions_started: int = 0
    learning_errors: int = 0
    guarded_sent: int = 0
    guarded_ran: int = 0
    guarded_refused: int = 0
