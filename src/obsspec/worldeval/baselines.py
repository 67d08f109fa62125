"""What needs no world model: guessing that nothing was printed, and that the same call prints the same again."""

from __future__ import annotations

import re

from obsspec.protocols import Emit
from obsspec.values import Context, Observation, Prediction
from obsspec.worldeval.recorded import written

NO_OUTPUT = "baseline: no output"
REPEAT = "baseline: repeat"

_FRAME = re.compile(
    r"""
    \b(?:return_?code|exit[_ ]?(?:code|status)|rc)\W{0,3}0\b    # it succeeded
  | </?(?:output|stdout|stderr|result|return_?code|exit_?code|tool_response|observation)>
  | "(?:output|stdout|stderr|result)":\s*""
  | \b(?:executed\ successfully\ )?(?:with\ )?no\ output\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST = 160  # of a text that says in some frame that there is nothing


def is_empty(text: str) -> bool:
    """Whether a tool's text says that it succeeded and printed nothing: blank, or only the tool's words for that."""
    if not text.strip():
        return True
    rest = _FRAME.sub("", text) if len(text) <= _LONGEST else text
    return rest != text and not re.search(r"\w", rest)


class NoOutput:
    """Always guesses the text by which the tool last said that it printed nothing, before that the empty text."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        texts = (self._texts.get(call.name, "") for call in context.calls)
        emit(Prediction(tuple(map(Observation, texts)), NO_OUTPUT, 0.1))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        for call, observation in zip(context.calls, observations, strict=True):
            if is_empty(observation.text):
                self._texts[call.name] = observation.text


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
    return (context.task_id, *(f"{call.name} {written(call)}" for call in context.calls))
