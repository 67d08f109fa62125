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
_LARGEST = 2**32  # token id
# Say nothing about what is sampled, and may differ from request to request.
UNSAID = frozenset((b"traceparent", b"tracestate", b"baggage", b"x-stainless-retry-count", b"date"))
# Say nothing about who asks. Any other header may, by whatever name a gateway knows its key.
_ANYBODYS = frozenset(
    b"accept accept-encoding accept-language cache-control content-length content-type idempotency-key pragma "
    b"user-agent x-client-request-id x-correlation-id x-request-id".split()
)
_SDKS = b"x-stainless-"  # what the SDKs of many vendors say of themselves


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
    body, canonical. `said`: digest of the headers that may matter. `credentials`: of the query and of all headers that
    may say who asks. `scope`: of path, credentials and the session that the client names; conversations never go from
    one to another. `client`: whose habits these are.
    """

    route: Route
    scope: str
    credentials: str
    client: str
    units: tuple[str, ...] | Tokens
    fields: str
    said: str
    streams: bool
    target: bytes = field(repr=False)
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
    raw_path, _, query = target.partition(b"?")
    path = raw_path.decode("latin-1")
    route = route_of(path)
    fields = read_object(body) if route is not None else None
    if route is None or fields is None or header(headers, b"content-encoding"):
        return None
    try:
        units = _units(route, fields.pop(route.prompt, None))
        names = sorted(fields)
        rest = canonical({name: fields[name] for name in names})
    except RecursionError:  # nested just so deeply that it can be read, but not written
        return None
    if units is None or fields.get("n", 1) != 1 or fields.get("best_of", 1) not in (1, None):
        return None
    others = _ANYBODYS.union(unsaid, session_headers)
    whose = sorted(f"{k!r}{value!r}" for k, value in headers if k not in others and not k.startswith(_SDKS))
    credentials = _digest(repr(query), *whose)
    session = [f"{name!r}{value!r}" for name, value in headers if name in session_headers]
    said = sorted(f"{name!r}{value!r}" for name, value in headers if name not in unsaid and name != b"content-length")
    agent = header(headers, b"user-agent")
    streams = fields.get("stream") is True
    return Asked(
        route=route,
        scope=_digest(repr(target), credentials, *session),
        credentials=credentials,
        client=_digest(path, agent, str(streams), *names),
        units=units,
        fields=rest,
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
    if set(map(type, parts)) != {int} or min(parts) < 0 or max(parts) > _LARGEST:
        return None
    return tuple(parts)


def _digest(*parts: str) -> str:
    found = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()
