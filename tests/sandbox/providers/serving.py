"""What the stand-ins for providers share: boxes by id behind an HTTP server on loopback."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sandbox.providers.box import Box, GoneError, start_box

KEY = "the-key-of-the-tests"


@dataclass
class Boxes:
    """`created` and `requests`: what the server was asked for. `fail_next`: so many executions are not answered."""

    tasks: TaskGroup
    url: str = ""
    live: dict[str, Box] = field(default_factory=dict[str, Box])
    created: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    fail_next: int = 0

    async def make(self, asked: dict[str, Any]) -> str:
        self.created.append(asked)
        name = f"box{len(self.created)}"
        self.live[name] = await start_box(self.tasks)
        return name

    async def end(self, name: str) -> bool:
        box = self.live.pop(name, None)
        if box is not None:
            await box.close()
        return box is not None

    def fails(self) -> bool:
        self.fail_next -= 1
        return self.fail_next >= 0


@asynccontextmanager
async def served(application: Starlette, boxes: Boxes) -> AsyncGenerator[Boxes]:
    """The server, and the boxes that it made, for as long as the context lasts."""

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            boxes.requests.append((scope["method"], scope["path"]))
        await application(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    boxes.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        noted, loop="asyncio", http="h11", ws="none", lifespan="off", log_level="error", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: server.serve(sockets=[listener]))
        try:
            yield boxes
        finally:
            server.should_exit = True
            for name in list(boxes.live):
                await boxes.end(name)


async def gone(request: Request, error: Exception) -> Response:
    return JSONResponse({"message": "the sandbox was not found", "code": 404}, 404)


GONE = {GoneError: gone, KeyError: gone}
