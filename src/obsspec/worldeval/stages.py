"""Sources behind a cascade, asked once a turn however many cascades are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from obsspec.protocols import Emit, WorldModel
from obsspec.values import Context, EngineError, Observation, Prediction
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


class FirstConfident:
    """The plain cascade: stages in order until `breadth` candidates of at least `min_confidence` are there."""

    def __init__(self, stages: Sequence[WorldModel], min_confidence: float = 0.0) -> None:
        self._stages = stages
        self._min_confidence = min_confidence

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """A stage that fails is passed over."""
        emitted: list[tuple[str, ...]] = []

        def pass_on(prediction: Prediction) -> None:
            said = tuple(observation.text for observation in prediction.observations)
            if prediction.confidence >= self._min_confidence and len(emitted) < breadth and said not in emitted:
                emitted.append(said)
                emit(prediction)

        for stage in self._stages:
            if len(emitted) >= breadth:
                return
            try:
                await stage.predict(context, breadth - len(emitted), pass_on)
            except EngineError:
                continue

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        for stage in self._stages:
            stage.learn(context, observations)
