"""One recorded tool call, and what a world model would have known when it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from obsspec.compare.outcomes import program
from obsspec.values import ConfigError, Context, Exchange, Observation, Tokens, ToolCall

TEXT_TOOLS = {"bash": "command", "python": "code", "sql": "query"}  # tools whose argument is one text


@dataclass(frozen=True, slots=True)
class Recorded:
    """One turn with a tool call: what was asked and what came back.

    `tool_s`: seconds the tool really took. `replay_s`, `replay_output`: of the same command run again in a fresh
    sandbox. `probed`: whether it prints the same each time. None where not known. `prompt` and `completion` are the
    policy's tokens, empty where unknown.
    """

    kind: str
    task: str
    traj: str
    model: str
    step: int
    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]
    tool_s: float | None = None
    replay_s: float | None = None
    replay_output: str | None = None
    probed: bool | None = None
    prompt: Tokens = ()
    completion: Tokens = ()

    @property
    def call(self) -> ToolCall:
        return self.calls[0]

    @property
    def replay_equal(self) -> bool | None:
        """Whether it printed the same when it was run again."""
        if self.replay_output is None:
            return self.probed
        return len(self.observations) == 1 and self.observation.text == self.replay_output

    @property
    def observation(self) -> Observation:
        return self.observations[0]


Image = Callable[[str], str]  # the image that rollouts of a task start from


def to_call(tool: str, args: str | Mapping[str, Any]) -> ToolCall:
    """A JSON object is the arguments; any other text is the one argument of its tool."""
    name = TEXT_TOOLS.get(tool, "input")
    found = args if isinstance(args, Mapping) else _json_object(args)
    if found is None or (tool in TEXT_TOOLS and isinstance(args, str) and name not in found):
        return ToolCall(tool, {name: args})  # Python code may look like a JSON object
    return ToolCall(tool, found)


def label(call: ToolCall) -> str:
    """What a call is counted under: the program of a shell command, the verb of a query, else the tool."""
    if call.command:
        return program(call.command)
    if call.name == "sql":
        return program(str(call.arguments.get("query", ""))).upper()
    return call.name


def written(call: ToolCall) -> str:
    """The call as a person reads it."""
    values = list(call.arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(dict(call.arguments), ensure_ascii=False, sort_keys=True, default=str)


def identity(call: ToolCall) -> str:
    """Equal for equal calls and for no others."""
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)


def image_of(pattern: str) -> Image:
    """The part of a task id that names its image: the pattern's first group, or all it matches; the id if nothing."""
    if not pattern:
        return lambda task: task
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"--image-pattern {pattern}: no regular expression ({error})") from None

    def image(task: str) -> str:
        match = compiled.search(task)
        return task if match is None else (match.group(1) if compiled.groups else match.group())

    return image


def contexts(rollout: Sequence[Recorded], image: Image) -> Iterator[tuple[Recorded, Context]]:
    """Each turn of a rollout with exactly what was known before it."""
    history: tuple[Exchange, ...] = ()
    for turn in rollout:
        yield (
            turn,
            Context(
                prompt=turn.prompt,
                completion=turn.completion,
                calls=turn.calls,
                history=history,
                task_id=turn.task,
                image=image(turn.task),
                committed=len(history),
            ),
        )
        history = (*history, Exchange(turn.calls, turn.observations))


def _json_object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
