"""Rollouts of made-up tools: answers come from a function, the source is asked before it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import anyio

from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.tools import Tools

Step = tuple[str, Mapping[str, Any], str]  # tool, arguments, the real answer


def play(tools: Tools, steps: Iterable[Step], image: str = "task") -> list[Prediction | None]:
    """One rollout: what was predicted for each step before its answer was learnt."""
    history: tuple[Exchange, ...] = ()
    found: list[Prediction | None] = []
    for tool, arguments, answer in steps:
        call = ToolCall(tool, arguments)
        found.append(ask(tools, (call,), history, image))
        tools.learn(context((call,), history, image), (Observation(answer),))
        history = (*history, Exchange((call,), (Observation(answer),)))
    return found


def ask(
    tools: Tools, calls: tuple[ToolCall, ...], history: tuple[Exchange, ...] = (), image: str = "task"
) -> Prediction | None:
    """The first candidate for a turn."""
    emitted: list[Prediction] = []

    async def predict() -> None:
        await tools.predict(context(calls, history, image), 1, emitted.append)

    anyio.run(predict)
    return emitted[0] if emitted else None


def context(calls: tuple[ToolCall, ...], history: tuple[Exchange, ...], image: str) -> Context:
    return Context((), (), calls, history, task_id=image, image=image, committed=len(history))


def text(prediction: Prediction | None) -> str | None:
    return None if prediction is None else prediction.observations[0].text


def sql(query: str, answer: str) -> Step:
    return "db", {"statement": query}, answer
