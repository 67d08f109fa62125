"""Asking one world model one question, with a clock and a deadline; whatever it does has a typed end."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import anyio

from obsspec.protocols import Emit, WorldModel
from obsspec.values import Context, Observation, Prediction


@dataclass(frozen=True, slots=True)
class Answer:
    """What a world model emitted for one turn. Seconds: to the first candidate (to the end without one), to the end.

    `error` "": it ended by itself. Candidates that were emitted before an error count.
    """

    candidates: tuple[Prediction, ...] = ()
    first_s: float = 0.0
    total_s: float = 0.0
    error: str = ""


async def ask(
    model: WorldModel, context: Context, breadth: int, timeout_s: float, spent: Callable[[], float] = lambda: 0.0
) -> Answer:
    """At most `breadth` distinct candidates. `spent`: seconds so far that the clock of this call does not show.

    Cancelling it cancels the world model.
    """
    found: list[Prediction] = []
    times: list[float] = []

    def emit(prediction: Prediction) -> None:
        if any(texts(prediction.observations) == texts(f.observations) for f in found):
            return
        if len(found) == breadth:
            held = [number for number, each in enumerate(found) if each.tentative]
            if not held:
                return
            del found[held[0]], times[held[0]]
        found.append(prediction)
        times.append(perf_counter() - start + spent())

    error = f"no answer in {timeout_s:g} s"
    start = perf_counter()
    with anyio.move_on_after(timeout_s):
        error = await _predict(model, context, breadth, emit)
    total = perf_counter() - start + spent()
    return Answer(tuple(found), times[0] if times else total, total, error)


def teach(model: WorldModel, context: Context, observations: tuple[Observation, ...]) -> str:
    """Tells a world model what was true; "" or what it raised."""
    try:
        model.learn(context, observations)
    except Exception as error:  # noqa: BLE001 - the outcome is typed: a source that fails is a result of its evaluation
        return described(error)
    return ""


def texts(observations: tuple[Observation, ...]) -> tuple[str, ...]:
    return tuple(observation.text for observation in observations)


def described(error: Exception) -> str:
    """An error and where it was raised, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:200] + where


async def _predict(model: WorldModel, context: Context, breadth: int, emit: Emit) -> str:
    try:
        await model.predict(context, breadth, emit)
    except Exception as error:  # noqa: BLE001 - as above
        return described(error)
    return ""
