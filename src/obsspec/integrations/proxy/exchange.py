"""One request and its answer on the side of the client, byte for byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVarTuple

import anyio
from starlette.types import Receive, Scope, Send

from obsspec.integrations.proxy.stream import Start, Stream
from obsspec.integrations.proxy.wire import end_to_end, header, outgoing

_T = TypeVarTuple("_T")


class Exchange:
    """`target`: path and query as they came. `headers`: those that go to the engine. `complete`: the whole body was
    read. `gone`: the client has left."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        query: bytes = scope["query_string"]
        self.target: bytes = scope.get("raw_path", scope["path"].encode()) + (b"?" + query if query else b"")
        self._raw: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers = outgoing(self._raw)
        self.complete = not any(name in (b"content-length", b"transfer-encoding") for name, _ in self._raw)
        self.gone = False
        self._receive = receive
        self._send = send
        self._began = False
        self._read = anyio.Event()
        if self.complete:
            self._read.set()

    # The request ----------------------------------------------------------------------------------------------------

    async def read(self, limit: int) -> bytes:
        """The body, or more than `limit` bytes of it."""
        parts: list[bytes] = []
        size = 0
        while not self.complete and not self.gone and size <= limit:
            parts.append(await self._part())
            size += len(parts[-1])
        return b"".join(parts)

    async def body(self, first: bytes) -> AsyncGenerator[bytes, None]:
        """The body as it comes; `first` of it was read already."""
        if first:
            yield first
        while not self.complete and not self.gone:
            yield await self._part()

    @property
    def length(self) -> bytes:
        """What the client says of it."""
        return header(end_to_end(self._raw), b"content-length").encode()

    async def _part(self) -> bytes:
        message = await self._receive()
        self.gone = message["type"] == "http.disconnect"
        self.complete = not self.gone and not message.get("more_body", False)
        if self.gone or self.complete:
            self._read.set()
        return message.get("body", b"")

    async def until_gone(self, serve: Callable[[*_T], Awaitable[None]], *args: *_T) -> None:
        """Serves the client, and stops at once when it leaves."""

        async def watch() -> None:
            await self._read.wait()
            while not self.gone:
                self.gone = (await self._receive())["type"] == "http.disconnect"
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await serve(*args)
            tasks.cancel_scope.cancel()

    # The answer -----------------------------------------------------------------------------------------------------

    async def start(self, start: Start) -> None:
        self._began = True
        await self._send({"type": "http.response.start", "status": start.status, "headers": list(start.headers)})

    async def more(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def relay(self, start: Start, stream: Stream) -> None:
        """The answer as it comes. Where the engine hangs up in the middle the client sees the same: without the end of
        the body the server closes the connection."""
        stream.has_reader = True
        await self.start(start)
        async for chunk in stream.chunks():
            await self.more(chunk)
        if stream.ended:
            await self.end()

    async def unreachable(self, why: str) -> None:
        """There is no answer: 502; or no more of one that has begun, and the connection is closed."""
        if self._began:
            return
        body = f'{{"error":{{"message":"obsspec: no answer from the engine ({why})","type":"bad_gateway","code":502}}}}'
        headers = ((b"content-type", b"application/json"), (b"content-length", str(len(body.encode())).encode()))
        await self.start(Start(502, headers))
        await self.more(body.encode())
        await self.end()
