"""What needs no world model: guessing that nothing was printed, and that the same call prints the same again."""

from __future__ import annotations

from collections.abc import Mapping

from obsspec.protocols import Emit
from obsspec.values import Context, Observation, Prediction
from obsspec.worldeval.recorded import identity

NO_OUTPUT = "baseline: no output"
REPEAT = "baseline: repeat"


class NoOutput:
    """Always guesses that nothing was printed; `texts`: how each tool says so, "" where not given."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        texts = (self._texts.get(call.name, "") for call in context.calls)
        emit(Prediction(tuple(map(Observation, texts)), NO_OUTPUT, 0.1))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None: ...


class Repeat:
    """Guesses what the same call of the same task printed when it was last made; else says nothing."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], tuple[Observation, ...]] = {}

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        last = self._last.get(_key(context))
        if last is not None:
            emit(Prediction(last, REPEAT, 0.5))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self._last[_key(context)] = observations


def _key(context: Context) -> tuple[str, ...]:
    return (context.task_id, *map(identity, context.calls))
