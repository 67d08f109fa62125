"""HTTP as the engine clients use it: one client's settings, server-sent events, and errors by type."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Any

import httpx2

from obsspec.values import EngineError

_ENOUGH = 300  # characters of an error message that are passed on
_BODY_LIMIT = 1 << 16  # bytes of an error body that are read
_LINE_LIMIT = 1 << 24  # bytes of one event: no engine sends more, a broken one might
_RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})


class BusyError(EngineError):
    """The engine asked to come back after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def http_client(url: str, *, timeout_s: float, connections: int | None, headers: dict[str, str]) -> httpx2.AsyncClient:
    """`timeout_s`: the longest silence. No connection is used twice: a cancelled request closes its own anyway, and
    llama-server drops kept ones."""
    return httpx2.AsyncClient(
        base_url=url,
        headers={"connection": "close"} | headers,
        timeout=httpx2.Timeout(timeout_s, connect=min(10.0, timeout_s), pool=None),
        limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=0),
        verify=url.startswith("https:"),  # making a TLS context costs 25 ms
        trust_env=False,
    )


@contextmanager
def engine_errors(engine: str) -> Generator[None, None, None]:
    """What goes wrong on the wire becomes an `EngineError` that says which engine and what."""
    try:
        yield
    except httpx2.TimeoutException as error:
        may_still_run = isinstance(error, httpx2.ReadTimeout)  # nobody said that it is over: not to be run twice
        message = f"{engine} did not answer in time ({type(error).__name__})"
        raise EngineError(message, retryable=not may_still_run) from error
    except httpx2.HTTPError as error:
        raise EngineError(f"{engine}: {type(error).__name__}: {error}") from error


@contextmanager
def expected_shape(engine: str) -> Generator[None, None, None]:
    """Around code that takes an answer apart: another shape than expected is an `EngineError` too."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise EngineError(f"{engine} answered something else than expected ({error!r})") from error


async def check_status(response: httpx2.Response, engine: str) -> None:
    """Raises `BusyError` or `EngineError` unless the status is 200. 4xx are not retryable: the request is wrong."""
    status = response.status_code
    if status == 200:
        return
    message = f"{engine} answered {status}: {_reason(await _beginning(response))}"
    after = response.headers.get("retry-after", "")
    if status in _RETRYABLE and after.isdigit():
        raise BusyError(message, float(after))
    raise EngineError(message, retryable=status in _RETRYABLE)


async def events(response: httpx2.Response, engine: str) -> AsyncGenerator[Any, None]:
    """The JSON values of a stream of server-sent events, `[DONE]` left out.

    Split at "\\n" alone: `aiter_lines` also splits at U+2028 and its like, which JSON strings may contain.
    """
    buffer = b""
    async for chunk in response.aiter_bytes():
        *lines, buffer = (buffer + chunk).split(b"\n")
        if len(buffer) > _LINE_LIMIT:
            raise EngineError(f"{engine} sends an event without end")
        for line in lines:
            if line.startswith(b"error:"):
                raise EngineError(f"{engine}: {_reason(line[6:])}")
            if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
                with expected_shape(engine):
                    event = json.loads(data)
                yield event


async def _beginning(response: httpx2.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _BODY_LIMIT:
            break
    return body


def _reason(body: bytes) -> str:
    """The message inside an error body, or its beginning."""
    try:
        value: Any = json.loads(body)
        message: Any = value.get("error", value)
        message = message.get("message", message) if isinstance(message, dict) else message  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    except (ValueError, AttributeError):
        message = body.decode(errors="replace")
    return " ".join(str(message).split())[:_ENOUGH]  # pyright: ignore[reportUnknownArgumentType]
