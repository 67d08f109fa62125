"""A scripted HTTP/1.1 server on the test's own event loop: what it sends, when, and who hangs up is up to the test."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Reply:
    """The connection of one request. It is closed when the script returns."""

    _stream: SocketStream

    async def status(self, status: int, body: str = "", **headers: str) -> None:
        lines = [
            f"HTTP/1.1 {status} X",
            "connection: close",
            *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
        ]
        await self.raw("\r\n".join(lines) + "\r\n\r\n" + body)

    async def events(self, *events: Any) -> None:
        for event in events:
            await self.raw(f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}\n\n")

    async def raw(self, text: str) -> None:
        await self._stream.send(text.encode())


Script = Callable[[Request, Reply], Awaitable[None]]


@dataclass(slots=True)
class Loopback:
    """`open` requests are being answered now; `hung_up` counts clients that left before the script ended."""

    url: str
    requests: list[Request] = field(default_factory=list)
    open: int = 0
    hung_up: int = 0
    closed: anyio.Event = field(default_factory=anyio.Event)  # set, and made anew, when a connection ends

    async def settled(self) -> None:
        """Returns when the server has seen every client leave."""
        with anyio.fail_after(5):
            while self.open:
                await self.closed.wait()


@asynccontextmanager
async def loopback(script: Script, *, metrics: bool = False) -> AsyncGenerator[Loopback, None]:
    """Without `metrics` there is no such page, whatever the script says, and nobody is seen to ask for it."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        server = Loopback(f"http://127.0.0.1:{port}")

        async def handle(stream: SocketStream) -> None:
            async with stream:
                if (request := await _read(stream)) is None:
                    return
                if request.path == "/metrics" and not metrics:
                    await Reply(stream).status(404)
                    return
                server.requests.append(request)
                server.open += 1
                try:
                    await _answer(server, script, request, stream)
                finally:
                    server.open -= 1
                    server.closed.set()
                    server.closed = anyio.Event()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handle)
            yield server
            tasks.cancel_scope.cancel()


async def _answer(server: Loopback, script: Script, request: Request, stream: SocketStream) -> None:
    """Runs the script until it ends or the client hangs up."""

    async def watch() -> None:
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            server.hung_up += 1
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            await script(request, Reply(stream))
        except anyio.BrokenResourceError:
            server.hung_up += 1
        tasks.cancel_scope.cancel()


async def _read(stream: SocketStream) -> Request | None:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    method, path, _ = first.split(" ")
    return Request(method, path, headers, json.loads(body) if body else None)
