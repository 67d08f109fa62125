"""One call with what came before it in its rollout, as the hypotheses see it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from obsspec.values import Context, ToolCall

MAX_TEXT = 200_000  # characters of an answer that is still looked into


@dataclass(frozen=True, slots=True)
class Seen:
    """A call and its answer."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A call to be answered: `before` is its rollout so far, oldest first, calls of the same turn included.

    Rollouts of one `image` see the same world until they change it.
    """

    call: ToolCall
    before: tuple[Seen, ...] = ()
    image: str = ""

    def then(self, text: str, call: ToolCall) -> Asked:
        """The next call, when this one was answered with `text`."""
        return Asked(call, (*self.before, Seen(self.call, text)), self.image)


def first_call(context: Context) -> Asked:
    """The first call of the turn of `context`, which has at least one."""
    before = tuple(
        Seen(call, observation.text)
        for exchange in context.history
        for call, observation in zip(exchange.calls, exchange.observations, strict=False)
    )
    return Asked(context.calls[0], before, context.image or context.task_id)


@lru_cache(maxsize=4096)
def read_json(text: str) -> Any:
    """The JSON value that `text` is, or None. Shared between callers: never to be changed."""
    if len(text) > MAX_TEXT or text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Sequence[tuple[tuple[str | int, ...], Any]]:
    """The scalars inside a JSON-like value with the paths to them, in order."""
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType]
    else:
        return [(path, value)]
    return [found for key, inner in items for found in leaves(inner, (*path, key))]
