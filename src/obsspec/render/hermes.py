"""The Hermes/Qwen3 tool-call format: JSON calls in `<tool_call>` tags, any number of calls a turn.

The calls' results share one user turn, each in `<tool_response>` tags. The prompt after an action is appended, never
rendered again: templates that rewrite earlier turns (dropping thoughts, re-spelling JSON) can not change history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any, cast

from obsspec.render.vocabulary import Vocabulary
from obsspec.values import Completion, FinishReason, Observation, StopReason, Tokens, ToolCall, Turn

# Far below where Python gives up, which depends on who calls: a turn must be the same turn to everybody.
_MAX_DEPTH = 32
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class HermesRenderer:
    def __init__(self, vocabulary: Vocabulary, tools: Iterable[str] = ("bash",), system: str = "") -> None:
        self._vocabulary = vocabulary
        self._tools = frozenset(tools)
        self._system = system
        self._im_start = vocabulary.control("<|im_start|>")
        self._im_end = vocabulary.control("<|im_end|>")
        # Vocabularies that own the tags sample them as one id each; elsewhere they are ordinary text.
        self._tags = {t: self._own(t) for t in ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")}

    def _own(self, name: str) -> int | None:
        try:
            return self._vocabulary.control(name)
        except KeyError:
            return None

    @property
    def stop_token_ids(self) -> Tokens:
        return (self._im_end,)

    @property
    def observation_stop_ids(self) -> Tokens:
        own = self._tags["</tool_response>"]
        return (self._im_end,) if own is None else (own, self._im_end)

    def start(self, instruction: str) -> Tokens:
        system = self._message("system", self._system) if self._system else ()
        return (*system, *self._message("user", instruction), self._im_start, *self._encode("assistant\n"))

    def parse(self, completion: Completion) -> Turn:
        ids = completion.token_ids
        if not ids:
            return Turn(stop=StopReason.EMPTY)
        if completion.finish_reason is FinishReason.LENGTH or ids[-1] != self._im_end:
            return Turn(stop=StopReason.CUT)
        text = self._read(ids[:-1])
        if text is None:
            return Turn(error="malformed turn: control token inside")
        bodies: list[str] = _CALL.findall(text)
        if "<tool_call>" in _CALL.sub("", text):  # one of several calls is no reason to run the others
            return Turn(error="malformed tool call: not closed")
        if not bodies:
            return Turn(answer=text, stop=StopReason.FINAL)
        calls = [self._parse_call(body) for body in bodies]
        errors = [c for c in calls if isinstance(c, str)]
        if errors:
            return Turn(error="; ".join(errors))
        return Turn(calls=tuple(c for c in calls if not isinstance(c, str)))

    def extend(self, prompt: Tokens, completion: Tokens, observations: Sequence[Observation]) -> Tokens:
        frames = self._opened(completion)
        for observation in observations:
            frames += self._response(observation.text)
        frames += (self._im_end, *self._encode("\n"), self._im_start, *self._encode("assistant\n"))
        return prompt + frames  # one copy of a prompt that may be long

    def open_observation(self, prompt: Tokens, completion: Tokens, done: Sequence[Observation]) -> Tokens:
        frames = self._opened(completion)
        for observation in done:
            frames += self._response(observation.text)
        frames += (*self._encode("\n"), *self._tag("<tool_response>"), *self._encode("\n"))
        return prompt + frames

    def read_observation(self, token_ids: Tokens) -> str | None:
        own = self._tags["</tool_response>"]
        if own is not None:
            if own not in token_ids:
                return None
            text = self._read(token_ids[: token_ids.index(own)])
        else:
            whole = self._read(token_ids[:-1] if token_ids and token_ids[-1] == self._im_end else token_ids)
            text = whole.split("</tool_response>", 1)[0] if whole and "</tool_response>" in whole else None
        return text[:-1] if text is not None and text.endswith("\n") else text

    def _opened(self, completion: Tokens) -> Tokens:
        # Generation stops on <|im_end|>; the newline the template puts after it is ours to add, once.
        return (*completion, *self._encode("\n"), self._im_start, *self._encode("user"))

    def _response(self, text: str) -> Tokens:
        body = self._encode(f"{text}\n")
        newline = self._encode("\n")
        return (*newline, *self._tag("<tool_response>"), *newline, *body, *self._tag("</tool_response>"))

    def _message(self, role: str, content: str) -> Tokens:
        return (self._im_start, *self._encode(f"{role}\n{content}"), self._im_end, *self._encode("\n"))

    def _tag(self, name: str) -> Tokens:
        own = self._tags[name]
        return self._encode(name) if own is None else (own,)

    def _encode(self, text: str) -> Tokens:
        return self._vocabulary.encode(text)

    def _read(self, ids: Sequence[int]) -> str | None:
        """Text with this format's own tags spelled out; None if another control token is inside."""
        spelled = {i: tag for tag, i in self._tags.items() if i is not None}
        out: list[str] = []
        run: list[int] = []
        for i in ids:
            if not self._vocabulary.is_control(i):
                run.append(i)
                continue
            if i not in spelled:
                return None
            out += [self._vocabulary.decode(run), spelled[i]]
            run = []
        return "".join((*out, self._vocabulary.decode(run)))

    def _parse_call(self, body: str) -> ToolCall | str:
        try:
            loaded: Any = json.loads(body, parse_constant=_no_number)
        except RecursionError:
            return f"malformed tool call: arguments nested deeper than {_MAX_DEPTH}"
        except ValueError as error:
            return f"malformed tool call: {error}"
        if not isinstance(loaded, dict):
            return f"malformed tool call: expected an object, got {type(loaded).__name__}"
        fields = cast("dict[str, Any]", loaded)
        name, arguments = fields.get("name"), fields.get("arguments", {})
        if not isinstance(name, str) or name not in self._tools:
            return f"unknown tool: {name!r}; known: {', '.join(sorted(self._tools))}"
        if not isinstance(arguments, dict):
            return f"malformed tool call: arguments must be an object, got {type(arguments).__name__}"
        arguments = cast("dict[str, Any]", arguments)
        if _is_deeper(arguments, _MAX_DEPTH):
            return f"malformed tool call: arguments nested deeper than {_MAX_DEPTH}"
        if not _is_text(json.dumps(arguments, ensure_ascii=False)):
            return "malformed tool call: a lone surrogate is not text"
        if not isinstance(arguments.get("command", ""), str):
            return "malformed tool call: command must be a string"
        return ToolCall(name, MappingProxyType(arguments))


def _no_number(name: str) -> Any:
    """Python reads NaN and Infinity, JSON has neither, and a NaN is not even equal to itself."""
    raise ValueError(f"{name} is not JSON")


def _is_deeper(value: Any, limit: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)  # pyright: ignore[reportUnknownMemberType]
    return limit == 0 or any(_is_deeper(each, limit - 1) for each in inner)


def _is_text(text: str) -> bool:
    r"""Whether the text can be encoded: JSON may spell half a character, as in "\ud800"."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
