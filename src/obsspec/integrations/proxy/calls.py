"""The tool calls in an answer: those of the wire format, or one fenced block of a text that a harness will run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from obsspec.integrations.proxy.wire import read_object
from obsspec.values import FinishReason, StopReason, ToolCall, Turn

_BLOCK = re.compile(r"```([\w.+-]*)[ \t]*\n(.*?)\n?```", re.DOTALL)
_SHELL = re.compile(r"(?:^|_)(?:bash|sh|shell|console|terminal|zsh)(?:_|$)")
_PYTHON = re.compile(r"(?:^|_)(?:python|py|python3|ipython)(?:_|$)")


@dataclass(frozen=True, slots=True)
class Called:
    """`turn`: what was called, for a world model. `calls`: the same as the wire has it, one object for each result that
    follows."""

    turn: Turn
    calls: tuple[Mapping[str, Any], ...] = ()


def read_calls(message: Mapping[str, Any], finish: FinishReason) -> Called:
    """A turn that was cut is never gone on from, nor is one with a call that is not well formed."""
    if finish is FinishReason.LENGTH:
        return Called(Turn(stop=StopReason.CUT))
    wire = message.get("tool_calls")
    if wire:
        parsed = [_read_call(call) for call in wire]
        good = tuple(call for call in parsed if call is not None)
        if len(good) < len(parsed):
            return Called(Turn(error="malformed tool call"))
        return Called(Turn(calls=good), tuple(wire))
    content = message.get("content")
    call = _read_block(content) if isinstance(content, str) else None
    if call is None:
        return Called(Turn(answer=content if isinstance(content, str) else None, stop=StopReason.FINAL))
    return Called(Turn(calls=(call,)), (MappingProxyType({}),))


def _read_call(call: Any) -> ToolCall | None:
    function = cast("Mapping[str, Any]", call).get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return None
    function = cast("Mapping[str, Any]", function)
    name, arguments = function.get("name"), function.get("arguments")
    found = read_object(arguments.encode("utf-8", "replace")) if isinstance(arguments, str) else None
    if not isinstance(name, str) or found is None or not isinstance(found.get("command", ""), str):
        return None
    return ToolCall(name, MappingProxyType(found))


def _read_block(text: str) -> ToolCall | None:
    blocks: list[tuple[str, str]] = _BLOCK.findall(text)
    if len(blocks) != 1:
        return None
    language, code = blocks[0][0].lower(), blocks[0][1]
    if _SHELL.search(language):
        return ToolCall("bash", MappingProxyType({"command": code.strip()}))
    if _PYTHON.search(language):
        return ToolCall("python", MappingProxyType({"code": code}))
    return None
