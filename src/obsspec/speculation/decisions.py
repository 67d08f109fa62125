"""What a gate is asked, what it answers, and what it is told: the values between a session and its gate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from obsspec.values import Outcome


class What(StrEnum):
    """What a decision is about."""

    PREDICT = "predict"  # may this turn be predicted at all
    START = "start"  # may this candidate start a generation
    ASK = "ask"  # is an expensive source worth asking


class Why(StrEnum):
    OPEN = "open"  # this gate always says yes
    WORTH = "worth"
    NOT_WORTH = "not worth"
    FULL = "full"  # the engine would only queue it
    BROKEN = "broken"  # the world model is down or always too late, or the engine can not bear cancelled requests
    EXPLORE = "explore"  # refused, and tried all the same to learn whether that is still right
    PLANNED = "planned"  # as a test wants it


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer of a gate and its numbers.

    `p`: probability that the work will be used; `gain_s`: expected seconds hidden, `p` included; `cost_s`: expected
    seconds taken from others and wasted; `load`: other requests that share the engine.
    """

    what: What
    level: int  # the turn whose observation is predicted
    kind: str  # class of its command
    source: str
    allowed: bool
    why: Why
    p: float = 1.0
    gain_s: float = 0.0
    cost_s: float = 0.0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """May the observation of this turn be predicted? `depth`: unverified observations above the turn."""

    level: int
    kind: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """May this candidate start a generation?

    `kinds`: command classes from the committed turn down to the predicted one; `chain`: probability that every
    observation above the candidate is right; `elapsed_s`: since the committed turn was handed to the loop; `frees`:
    running generations that are dropped for it, whether it may start or not.
    """

    level: int
    kinds: tuple[str, ...]
    source: str
    confidence: float
    chain: float = 1.0
    elapsed_s: float = 0.0
    frees: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Is this expensive source worth asking?

    `p`: how often its answer is right; `have`: the same of the best candidate there is without it. `beside`: there is
    room for both; otherwise the candidate waits for the source, and one of the two is used. `elapsed_s`: since the
    turn was first looked at.
    """

    level: int
    kind: str
    source: str
    p: float
    have: float = 0.0
    beside: bool = True
    depth: int = 0
    elapsed_s: float = 0.0


@runtime_checkable
class Explains(Protocol):
    """A world model that decides something itself, and says so."""

    def take_decisions(self) -> list[Decision]:
        """The decisions made since this was last called."""
        ...


# What the gate is told. Times are seconds on one monotonic clock; a ticket identifies a generation while it runs.


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    ticket: int
    now_s: float


@dataclass(frozen=True, slots=True)
class GenerationEnded:
    """`finished` False: it was cancelled, or the engine `failed`, after `tokens` tokens."""

    ticket: int
    now_s: float
    tokens: int
    finished: bool
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """All calls of a committed turn are done, `seconds` after the turn was handed to the loop."""

    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """A source that was asked answered after `seconds`; or, when it was `late`, it had not answered by then."""

    source: str
    seconds: float
    late: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One distinct candidate of a settled turn. `matched` None: the real observation never came. `replaced`: by another
    one, so that it would not have been kept."""

    source: str
    confidence: float
    p: float
    started: bool
    matched: bool | None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """A committed turn is over."""

    kind: str
    outcome: Outcome
    said: tuple[Said, ...] = ()


Seen = GenerationStarted | GenerationEnded | ToolEnded | Predicted | Settled
