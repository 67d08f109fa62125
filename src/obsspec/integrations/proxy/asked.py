"""A request that the proxy understands, taken apart into what its conversation is found by and what its key is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, cast

from obsspec.integrations.proxy.wire import Headers, canonical, header, read_object
from obsspec.values import Tokens

SESSION_HEADERS = (b"x-obsspec-session", b"x-session-id")  # ours, and that of verifiers and prime-rl
_CREDENTIALS = (b"authorization", b"api-key", b"x-api-key", b"cookie")
# Say nothing about what is sampled, and may differ from request to request.
UNSAID = frozenset((b"traceparent", b"tracestate", b"baggage", b"x-stainless-retry-count", b"date"))


class Route(StrEnum):
    CHAT = "chat"  # messages in, a message out
    COMPLETIONS = "completions"  # prompt ids in, with `return_token_ids` ids out
    GENERATE = "generate"  # token ids in, token ids out

    @property
    def prompt(self) -> str:
        """The field of the body that grows from turn to turn."""
        return _PROMPTS[self]


_PROMPTS = {Route.CHAT: "messages", Route.COMPLETIONS: "prompt", Route.GENERATE: "token_ids"}
_PATHS = {
    "/v1/chat/completions": Route.CHAT,
    "/v1/completions": Route.COMPLETIONS,
    "/inference/v1/generate": Route.GENERATE,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """`units`: what the prompt consists of, canonical texts of messages or token ids. `fields`: all other fields of the
    body, canonical. `said`: digest of the headers that may matter. `scope`: of path, credentials and the session that
    the client names; conversations never go from one to another. `client`: whose habits these are.
    """

    route: Route
    scope: str
    credentials: str
    client: str
    units: tuple[str, ...] | Tokens
    fields: str
    said: str
    streams: bool
    target: bytes
    headers: Headers = field(repr=False)

    @property
    def rest(self) -> str:
        """Everything that has to be equal beside the prompt."""
        return f"{self.fields}\n{self.said}"


def route_of(path: str) -> Route | None:
    return next((route for end, route in _PATHS.items() if path.endswith(end)), None)


def read_request(
    target: bytes,
    headers: Headers,
    body: bytes,
    session_headers: Collection[bytes] = SESSION_HEADERS,
    unsaid: Collection[bytes] = UNSAID,
) -> Asked | None:
    """None for a request that is only passed on. `target`: path and query, as they came; `headers`: end to end."""
    path = target.partition(b"?")[0].decode("latin-1")
    route = route_of(path)
    fields = read_object(body) if route is not None else None
    if route is None or fields is None or header(headers, b"content-encoding"):
        return None
    units = _units(route, fields.pop(route.prompt, None))
    if units is None or fields.get("n", 1) != 1 or fields.get("best_of", 1) not in (1, None):
        return None
    credentials = _digest(*(f"{name!r}{value!r}" for name, value in headers if name in _CREDENTIALS))
    session = [f"{name!r}{value!r}" for name, value in headers if name in session_headers]
    said = sorted(f"{name!r}{value!r}" for name, value in headers if name not in unsaid and name != b"content-length")
    agent = header(headers, b"user-agent")
    names = sorted(fields)
    streams = fields.get("stream") is True
    return Asked(
        route=route,
        scope=_digest(repr(target), credentials, *session),
        credentials=credentials,
        client=_digest(path, agent, str(streams), *names),
        units=units,
        fields=canonical({name: fields[name] for name in names}),
        said=_digest(*said),
        streams=streams,
        target=target,
        headers=headers,
    )


def _units(route: Route, prompt: Any) -> tuple[str, ...] | Tokens | None:
    if not isinstance(prompt, list) or not prompt:
        return None
    parts = cast("list[Any]", prompt)
    if route is Route.CHAT:
        return tuple(canonical(part) for part in parts) if all(isinstance(part, dict) for part in parts) else None
    return tuple(parts) if all(type(part) is int and part >= 0 for part in parts) else None


def _digest(*parts: str) -> str:
    found = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()
