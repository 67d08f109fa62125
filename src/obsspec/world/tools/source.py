"""The tools source: hypotheses about API-like tools behind the world model protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obsspec.protocols import Emit
from obsspec.values import Context, Observation, Prediction
from obsspec.world.tools.arithmetic import Arithmetic
from obsspec.world.tools.hypothesis import Hypothesis
from obsspec.world.tools.objects import Objects
from obsspec.world.tools.seen import Asked, first_call
from obsspec.world.tools.sql.hypotheses import sql_hypotheses
from obsspec.world.tools.template import Templates
from obsspec.world.tools.trust import Claim, Trust


@dataclass(frozen=True, slots=True)
class _Candidate:
    text: str
    source: str
    confidence: float


def standard_hypotheses() -> tuple[Hypothesis, ...]:
    """All that this package knows of."""
    return (Templates(), Arithmetic(), Objects(), *sql_hypotheses())


class Tools:
    """Predicts answers of tools from what the same tools answered before, in this and in other rollouts.

    `floor`: a claim with less confidence than this is not said. Confidence is the posterior mean of the hypothesis
    for this kind of call. One object serves all rollouts of a run; `predict` never suspends, so nothing needs freeing
    when it is cancelled.
    """

    def __init__(self, hypotheses: Sequence[Hypothesis] | None = None, *, floor: float = 0.8) -> None:
        self._hypotheses = tuple(standard_hypotheses() if hypotheses is None else hypotheses)
        self._trust = Trust()
        self._floor = floor

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Emits distinct candidates, the most trusted first. A turn of several calls has at most one."""
        if not context.calls:
            return
        if len(context.calls) > 1:
            self._predict_all(context, emit)
            return
        for found in self._candidates(first_call(context))[:breadth]:
            emit(Prediction((Observation(found.text),), found.source, found.confidence))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        if not context.calls:
            return
        asked = first_call(context)
        for index, observation in enumerate(observations[: len(context.calls)]):
            self._learn_one(asked, observation.text)
            if index + 1 < len(context.calls):
                asked = asked.then(observation.text, context.calls[index + 1])

    def _predict_all(self, context: Context, emit: Emit) -> None:
        asked, confidence, texts = first_call(context), 1.0, list[str]()
        for following in (*context.calls[1:], None):
            best = next(iter(self._candidates(asked)), None)
            if best is None:
                return
            confidence *= best.confidence
            texts.append(best.text)
            if following is not None:
                asked = asked.then(best.text, following)
        emit(Prediction(tuple(map(Observation, texts)), "tools", confidence))

    def _candidates(self, asked: Asked) -> list[_Candidate]:
        best: dict[str, _Candidate] = {}
        for claim in self._claims(asked):
            confidence = self._trust.confidence(claim)
            known = best.get(claim.text)
            if confidence >= self._floor and (known is None or known.confidence < confidence):
                best[claim.text] = _Candidate(claim.text, claim.source, confidence)
        return sorted(best.values(), key=lambda found: -found.confidence)

    def _claims(self, asked: Asked) -> list[Claim]:
        return [claim for hypothesis in self._hypotheses for claim in hypothesis.claims(asked)]

    def _learn_one(self, asked: Asked, text: str) -> None:
        for claim in self._claims(asked):
            self._trust.settle(claim, text)
        for hypothesis in self._hypotheses:
            hypothesis.learn(asked, text)
