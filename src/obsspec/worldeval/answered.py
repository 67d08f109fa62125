"""Sources behind a cascade, asked once a turn however many cascades are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from obsspec.protocols import Emit, WorldModel
from obsspec.values import Context, EngineError, Observation
from obsspec.worldeval.asking import Answer


class Answered:
    """A source that has already answered the turn in hand: gives the same candidates again.

    `asked_s`: the seconds they took, once it was asked for them. It learns nothing: the source behind it does, once.
    """

    def __init__(self) -> None:
        self._answer = Answer()
        self.asked_s = 0.0

    def put(self, answer: Answer) -> None:
        self._answer = answer
        self.asked_s = 0.0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Raises `EngineError` where the source failed, so that a cascade treats it as it treats any failing stage."""
        self.asked_s = self._answer.first_s
        for prediction in self._answer.candidates[:breadth]:
            emit(prediction)
        if self._answer.error:
            raise EngineError(self._answer.error)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None: ...


Cascading = Callable[[Mapping[str, WorldModel]], WorldModel]  # stages by name, cheapest first
