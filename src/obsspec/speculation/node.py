"""One node of the speculation tree: one prompt, its generation, and the attempt to predict what follows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from obsspec.values import Completion, GenerationKey, Guard, Observation, Tokens, Turn


class Generation(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Attempt(StrEnum):
    NONE = "none"  # not tried (yet)
    GATED = "gated"
    SILENT = "silent"  # asked, and had nothing to say
    PENDING = "pending"
    PREDICTED = "predicted"
    FAILED = "failed"
    CANCELLED = "cancelled"  # the real observation came first


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a speculative node's observation came from; `p`: how likely it is right, as the gate saw it."""

    source: str
    confidence: float
    p: float = 1.0


@dataclass(slots=True, eq=False)
class Candidate:
    """One distinct predicted observation: the whole prompt it leads to, and where it came from.

    Equality with the real observation is equality of `prompt`: the encoded frame is what the policy would see. A
    candidate without a `key` leaves no room to generate; one that the gate `refused` is only compared, and so is one
    that was `dropped`: it is contradicted by how the real observation begins, or was `replaced`.
    """

    prompt: Tokens
    origin: Origin
    observations: tuple[Observation, ...]
    key: GenerationKey | None
    refused: bool = False
    started: bool = False
    dropped: bool = False
    tentative: bool = False
    replaced: bool = False


@dataclass(slots=True, eq=False)
class Node:
    id: int
    level: int  # turn number; the head's level is the committed turn, deeper levels are unverified
    key: GenerationKey
    parent: Node | None = None
    origin: Origin | None = None  # None: committed when it was started
    observations: tuple[Observation, ...] = ()  # predicted observations that led from the parent to here
    generation: Generation = Generation.RUNNING
    completion: Completion | None = None
    turn: Turn | None = None
    kind: str = ""  # class of its calls, once it is to be predicted
    attempt: Attempt = Attempt.NONE
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    branches_started: int = 0
    spoken: bool = False  # something was predicted, usable or not
    children: list[Node] = field(default_factory=list["Node"])  # each with a key of its own
    before: Guard | None = None  # the commands before its turn's, once they were asked for
    sent_ahead: bool = False  # its call is with the sandbox, guarded
    settled: bool = False  # the outcome of its attempt is known

    @property
    def has_calls(self) -> bool:
        return self.turn is not None and bool(self.turn.calls)

    @property
    def is_tentative(self) -> bool:
        """The observation that it stands on may still be replaced."""
        above = self.parent
        if above is None or above.attempt is not Attempt.PENDING:
            return False
        return any(candidate.tentative and candidate.prompt == self.key.prompt for candidate in above.candidates)

    @property
    def may_be_sent_ahead(self) -> bool:
        """Its turn's one call will be made exactly if the observations above it are right, in a loop that follows the
        rules: what the loop does before it (parse, check, limits) is already known, and what ends it comes after.

        Of a turn with several calls, the second depends on the first one's answer, which is not predicted by then.
        What stands on a tentative observation waits: a branch is replaced whatever it has sampled, and so must not
        have had consequences by then.
        """
        turn = self.turn
        if turn is None or self.parent is None or self.sent_ahead or self.is_tentative:
            return False
        return len(turn.calls) == 1 and turn.error is None and turn.stop is None

    def is_full(self, breadth: int) -> bool:
        """As many candidates as may be drafted, those that were replaced not counted."""
        return sum(not candidate.replaced for candidate in self.candidates) >= breadth

    def has_room(self, breadth: int) -> bool:
        """For one more candidate, maybe in place of a tentative one."""
        return not self.is_full(breadth) or any(candidate.tentative for candidate in self.candidates)

    def subtree(self) -> list[Node]:
        """This node and everything below it, parents first."""
        nodes: list[Node] = [self]
        for node in nodes:
            nodes.extend(node.children)
        return nodes
