"""The proxy as an ASGI application: what a client sends goes to the engine, and what the engine answers comes back."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from obsspec.integrations.proxy.asked import read_request, route_of
from obsspec.integrations.proxy.conversation import Call
from obsspec.integrations.proxy.exchange import Exchange
from obsspec.integrations.proxy.metrics import CONTENT_TYPE
from obsspec.integrations.proxy.service import Service
from obsspec.integrations.proxy.stream import Start, Stream
from obsspec.integrations.proxy.upstream import UpstreamError, answer_headers
from obsspec.integrations.proxy.wire import header

_HARMLESS = ("GET", "HEAD", "OPTIONS")
MAX_BODY = 64 << 20  # bytes of a request that are read to understand it; a longer one is passed on as it comes


def application(service: Service) -> Starlette:
    """`/obsspec/metrics` and `/obsspec/report` are ours, every other path is the engine's."""

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def report(request: Request) -> Response:
        return JSONResponse(service.parts.figures.report())

    routes = [Route("/obsspec/metrics", metrics), Route("/obsspec/report", report), Mount("/", Proxy(service))]
    return Starlette(routes=routes)


class Proxy:
    """One request, one answer. A client that leaves takes its request to the engine with it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        body = b""
        if exchange.method == "POST" and route_of(scope["path"]) is not None:
            body = await exchange.read(MAX_BODY)
            if await self._understood(exchange, body):
                return
        self._service.parts.figures.passed += 1
        await exchange.until_gone(self._pass, exchange, body)

    async def _understood(self, exchange: Exchange, body: bytes) -> bool:
        """Whether it was a request of a conversation; if so, it is answered."""
        service = self._service
        if not exchange.complete:
            return exchange.gone
        asked = read_request(exchange.target, exchange.headers, body, service.session_headers, service.unsaid)
        found = service.conversations.ask(asked, body) if asked is not None else None
        if found is None:
            return False
        conversation, call = found
        service.parts.figures.asked += 1
        try:
            await exchange.until_gone(self._answer, exchange, call)
        finally:
            conversation.gave_up(call)
        return True

    async def _answer(self, exchange: Exchange, call: Call) -> None:
        """What the conversation gives, as soon as it can not be made again; another stream if it was."""
        while True:
            stream = call.stream
            start = await _ready(stream, early=call.early)
            if call.stream is stream:
                break
        call.fixed = True
        if start is None:
            await exchange.unreachable(stream.failure)
        else:
            await exchange.relay(start, stream)

    async def _pass(self, exchange: Exchange, body: bytes) -> None:
        headers = exchange.headers
        content = body if exchange.complete else exchange.body(body)
        if not exchange.complete and exchange.length:
            headers = (*headers, (b"content-length", exchange.length))
        upstream = self._service.parts.upstream
        try:
            async with upstream.send(
                exchange.method, exchange.target, headers, content, repeatable=exchange.method in _HARMLESS
            ) as answer:
                await exchange.start(Start(answer.status_code, answer_headers(answer)))
                async for chunk in answer.aiter_raw():
                    await exchange.more(chunk)
                await exchange.end()
        except UpstreamError as error:
            self._service.parts.figures.upstream_errors += 1
            await exchange.unreachable(str(error))


async def _ready(stream: Stream, *, early: bool) -> Start | None:
    """The beginning of an answer that may be passed on. One that was started early and is not a stream of events is
    held until it is complete: should it fail, it can still be made again."""
    start = await stream.started()
    events = start is not None and header(start.headers, b"content-type").startswith("text/event-stream")
    if early and start is not None and not (events and start.status == 200):
        await stream.complete()
    return start
