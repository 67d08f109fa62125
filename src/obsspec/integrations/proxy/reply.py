"""Reads an answer of the engine while it passes by: the message or the token ids in it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from obsspec.integrations.proxy.asked import Route
from obsspec.integrations.proxy.wire import EventReader, Headers, Inflater, header, read_object
from obsspec.values import FinishReason, Tokens

LIMIT = 16 << 20  # bytes of an answer that are read; a longer one is passed on, and nothing is built on it


@dataclass(frozen=True, slots=True)
class Reply:
    """What was sampled: a `message` of a chat, or `token_ids`. `tokens`: how many, as far as the engine says."""

    message: dict[str, Any]
    token_ids: Tokens
    finish: FinishReason
    tokens: int


class ReplyReader:
    """`feed` every chunk, then `reply`. It never raises: what it does not understand is no reply."""

    def __init__(self, route: Route, headers: Headers) -> None:
        self._route = route
        self._events = EventReader() if header(headers, b"content-type").startswith("text/event-stream") else None
        self._body = bytearray()
        self._parts = _Parts(route)
        self._size = self._raw_size = 0
        length = header(headers, b"content-length")
        self._length = int(length) if length.isdecimal() else -1
        self._done = False
        try:
            self._inflater: Inflater | None = Inflater(header(headers, b"content-encoding"))
        except ValueError:
            self._inflater = None

    @property
    def tokens(self) -> int:
        """Sampled so far, as far as one can tell from outside."""
        return self._parts.tokens

    @property
    def is_complete(self) -> bool:
        """All that matters has come, though the connection may not have come to its end."""
        return self._done or self._raw_size == self._length

    def feed(self, chunk: bytes) -> None:
        self._raw_size += len(chunk)
        if self._inflater is None:
            return
        try:
            self._feed(self._inflater.feed(chunk, LIMIT))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            self._give_up()

    def reply(self) -> Reply | None:
        """After the last chunk."""
        if self._inflater is None:
            return None
        if self._events is not None:
            return self._parts.reply() if self._done else None
        whole = read_object(bytes(self._body))
        try:
            if whole is not None:
                self._parts.add_whole(whole)
            return self._parts.reply()
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return None

    def _feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > LIMIT:
            self._give_up()
        elif self._events is None:
            self._body += data
        else:
            for event in self._events.feed(data):
                if event == b"[DONE]":
                    self._done = True
                elif event:
                    self._add_event(event)

    def _add_event(self, event: bytes) -> None:
        value = read_object(event)
        if value is None or "error" in value:
            raise ValueError("an event that is no answer")
        self._parts.add_event(value)

    def _give_up(self) -> None:
        self._inflater = None
        self._body = bytearray()


@dataclass(slots=True)
class _Parts:
    """What the pieces of an answer add up to."""

    route: Route
    message: dict[str, Any] = field(default_factory=dict[str, Any])
    calls: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    ids: list[int] = field(default_factory=list[int])
    has_ids: bool = False
    finish: str | None = None
    usage: int | None = None
    events: int = 0

    @property
    def tokens(self) -> int:
        return self.usage if self.usage is not None else len(self.ids) or self.events

    def add_whole(self, answer: dict[str, Any]) -> None:
        self._count(answer)
        (choice,) = answer["choices"]
        self._finish(choice)
        if self.route is Route.CHAT:
            self.message = dict(choice["message"])
        elif choice.get("token_ids") is not None:
            self._add_ids(choice["token_ids"])

    def add_event(self, event: dict[str, Any]) -> None:
        self._count(event)
        choices: list[dict[str, Any]] = event["choices"]
        if not choices:
            return
        (choice,) = choices
        self._finish(choice)
        if self.route is Route.CHAT:
            self._add_delta(choice["delta"])
        elif choice.get("token_ids") is not None:
            self._add_ids(choice["token_ids"])

    def reply(self) -> Reply | None:
        if self.finish not in ("stop", "tool_calls", "length", "function_call"):
            return None
        finish = FinishReason.LENGTH if self.finish == "length" else FinishReason.STOP
        if self.route is not Route.CHAT:
            return Reply({}, tuple(self.ids), finish, self.tokens) if self.has_ids else None
        message = self.message
        if self.calls:
            message = {**message, "tool_calls": [self.calls[index] for index in sorted(self.calls)]}
        return Reply(message, (), finish, self.tokens)

    def _count(self, answer: dict[str, Any]) -> None:
        usage = answer.get("usage")
        if isinstance(usage, dict):
            self.usage = int(cast("dict[str, Any]", usage)["completion_tokens"])

    def _finish(self, choice: dict[str, Any]) -> None:
        if choice.get("index", 0) != 0:
            raise ValueError("more than one choice")
        self.finish = choice.get("finish_reason") or self.finish

    def _add_ids(self, ids: list[int]) -> None:
        if not all(type(i) is int for i in ids):
            raise ValueError("ids that are no numbers")
        self.has_ids = True
        self.ids += ids

    def _add_delta(self, delta: dict[str, Any]) -> None:
        """Texts are joined, calls by their index, anything else is replaced: as the clients do it."""
        self.events += 1
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    _merge(self.calls.setdefault(call["index"], {}), call)
            elif key != "role" and isinstance(value, str) and isinstance(self.message.get(key), str):
                self.message[key] += value
            else:
                self.message[key] = value if value is not None else self.message.get(key)


def _merge(call: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "index" or value is None:
            continue
        if key == "function":
            function = call.setdefault("function", {})
            if value.get("name"):
                function["name"] = value["name"]
            function["arguments"] = function.get("arguments", "") + (value.get("arguments") or "")
        else:
            call[key] = value
