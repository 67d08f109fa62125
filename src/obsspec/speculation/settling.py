"""The outcome of the attempt to predict one committed turn: pure, and a function of its node and the truth alone."""

from __future__ import annotations

from obsspec.speculation.commands import CancelPrediction, Command, Settle
from obsspec.speculation.decisions import Said
from obsspec.speculation.node import Attempt, Candidate, Node, Origin
from obsspec.values import Outcome, Tokens


def settle(head: Node, real_prompt: Tokens | None) -> list[Command]:
    """Once for each committed turn with a call. `real_prompt`: what its real observation leads to; None if it never
    came. Whatever still predicts it is stopped."""
    if head.settled or head.turn is None or not head.turn.calls:
        return []
    head.settled = True
    right = next((c for c in head.candidates if c.prompt == real_prompt), None)
    standing = [c for c in head.candidates if not c.replaced]
    shown = right if right in standing else next(iter(standing), None)
    origin = shown.origin if shown else Origin("", 0.0)
    settled = Settle(
        head.id,
        head.level,
        head.turn.calls,
        outcome(head, right, real_prompt),
        origin.source,
        origin.confidence,
        head.branches_started,
        head.kind,
        tuple(_said(candidate, real_prompt) for candidate in head.candidates),
    )
    if head.attempt is Attempt.PENDING:
        head.attempt = Attempt.PREDICTED if head.candidates else Attempt.CANCELLED
        return [CancelPrediction(head.id), settled]
    return [settled]


def outcome(head: Node, right: Candidate | None, real_prompt: Tokens | None) -> Outcome:
    """`right`: the candidate that leads to the same prompt as the real observation."""
    match head.attempt:
        case Attempt.NONE | Attempt.GATED | Attempt.SILENT:
            return Outcome.GATED
        case Attempt.FAILED:
            return Outcome.FAILED
        case _ if head.candidates and all(candidate.refused for candidate in head.candidates):
            return Outcome.GATED
        case _ if not head.candidates or real_prompt is None:
            return Outcome.CANCEL  # the prediction came late, or the observation never came
        case _:
            kept = right is not None and not right.refused and not right.dropped
            return Outcome.MATCH if kept else Outcome.ROLLBACK


def _said(candidate: Candidate, real_prompt: Tokens | None) -> Said:
    matched = None if real_prompt is None else candidate.prompt == real_prompt
    origin = candidate.origin
    return Said(origin.source, origin.confidence, origin.p, candidate.started, matched, candidate.replaced)
