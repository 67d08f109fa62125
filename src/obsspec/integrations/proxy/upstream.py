"""The engine behind the proxy: sends a request as it was written and gives the answer as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx2

from obsspec.integrations.proxy.wire import Headers, end_to_end
from obsspec.values import ConfigError

_CONNECT_S = 10.0
_KEPT = 8  # connections that wait for the next request: all of them are looked at for each
_KEPT_S = 2.0  # engines drop kept connections after 5 s
AT_ONCE_S = 1.0  # a connection that had been closed when it was used says so on the way back of what was sent


class UpstreamError(Exception):
    """The engine could not be reached, or hung up."""


class Upstream:
    """One for all requests. No limit on connections and no time limit but for connecting: both are the client's to set.

    Leaving `send` early closes the connection at once, which makes an engine stop sampling.
    """

    def __init__(self, url: str) -> None:
        """`url` with or without `/v1`. Raises `ConfigError`."""
        self.url = engine_root("--upstream", url)
        parsed = httpx2.URL(self.url)
        self._host = parsed.netloc
        self._prefix = parsed.raw_path.rstrip(b"/")
        self.open = 0  # requests that are being answered
        self._kept, self._once = _client(_KEPT), _client(0)

    async def aclose(self) -> None:
        await self._kept.aclose()
        await self._once.aclose()

    @asynccontextmanager
    async def send(
        self, method: str, target: bytes, headers: Headers, body: bytes | AsyncIterable[bytes], *, repeatable: bool
    ) -> AsyncGenerator[httpx2.Response, None]:
        """`target`: path and query, byte for byte. `repeatable`: it does no harm if the engine gets it twice.

        Raises `UpstreamError`, also while the answer is being read.
        """
        self.open += 1
        try:
            if repeatable and isinstance(body, bytes):
                response = await self._sent_again(method, target, headers, body)
            else:
                response = await self._once.send(self._request(method, target, headers, body), stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            raise UpstreamError(f"{type(error).__name__}: {error}") from error
        finally:
            self.open -= 1

    async def _sent_again(self, method: str, target: bytes, headers: Headers, body: bytes) -> httpx2.Response:
        """A connection that was kept may be dropped just as it is used again: then on a new one. Where that is not what
        happened the engine may be at work on the request, or have been, and the client is told."""
        while True:
            attempt = _Attempt()
            request = self._request(method, target, headers, body, trace=attempt.note)
            try:
                return await self._kept.send(request, stream=True)
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                if not attempt.met_a_dropped_connection:
                    raise

    def _request(
        self, method: str, target: bytes, headers: Headers, body: bytes | AsyncIterable[bytes], **extensions: object
    ) -> httpx2.Request:
        return httpx2.Request(
            method,
            self.url,
            headers=[(b"host", self._host), *headers],
            content=body,
            extensions={"target": self._prefix + target, **extensions},  # a URL would be tidied up
        )


@dataclass(slots=True)
class _Attempt:
    """What is known of a request before its answer begins."""

    opened: bool = False  # a connection of its own
    sent_s: float | None = None  # when all of it was

    async def note(self, event: str, info: object) -> None:
        if event.endswith("connect_tcp.started"):
            self.opened = True
        elif event.endswith("receive_response_headers.started"):
            self.sent_s = anyio.current_time()

    @property
    def met_a_dropped_connection(self) -> bool:
        """It failed on a kept one, and at once."""
        return not self.opened and (self.sent_s is None or anyio.current_time() - self.sent_s < AT_ONCE_S)


def engine_root(option: str, url: str) -> str:
    """The URL that `option` gives, with or without `/v1`, without it. Raises `ConfigError`."""
    root = url.rstrip("/").removesuffix("/v1")
    try:
        parsed = httpx2.URL(root)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"{option} {url} is no URL ({error}): write http://host:port") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"{option} {url} is no URL of an engine: write http://host:port")
    return root


def _client(kept: int) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=kept, keepalive_expiry=_KEPT_S),
        trust_env=False,
        follow_redirects=False,
    )


def answer_headers(response: httpx2.Response) -> Headers:
    return end_to_end(response.headers.raw)
