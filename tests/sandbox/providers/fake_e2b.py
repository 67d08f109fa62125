"""A stand-in for E2B: the endpoints of its API, and of the daemon in its sandboxes, that the package calls."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.sandbox.providers.box import Box
from tests.sandbox.providers.serving import GONE, KEY, Boxes, served

LAST = 2  # flag of the envelope that ends a stream


class _E2B:
    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    async def create(self, request: Request) -> Response:
        if request.headers["x-api-key"] != KEY:
            return JSONResponse({"message": "Invalid API key", "code": 401}, 401)
        name = await self._boxes.make({**await request.json(), "key": request.headers["idempotency-key"]})
        about = {"templateID": "base", "sandboxID": name, "clientID": "c", "envdVersion": "0.6.9"}
        return JSONResponse({**about, "envdAccessToken": f"token of {name}"}, 201)

    async def delete(self, request: Request) -> Response:
        if not await self._boxes.end(request.path_params["name"]):
            return JSONResponse({"message": "not found", "code": 404}, 404)
        return Response(status_code=204)

    async def health(self, request: Request) -> Response:
        self._box(request)
        return Response(status_code=204)

    async def upload(self, request: Request) -> Response:
        path = request.query_params["path"]
        async with request.form() as form:
            file: Any = form["file"]
            await self._box(request).write(path, await file.read())
        return JSONResponse([{"path": path, "name": path, "type": "file"}])

    async def start(self, request: Request) -> Response:
        """One enveloped message in, a stream of them out."""
        config = json.loads((await request.body())[5:])["process"]
        box = self._box(request)
        if self._boxes.fails():
            return JSONResponse({"code": "unavailable", "message": "planned"}, 503)
        timeout_s = int(request.headers["connect-timeout-ms"]) / 1000
        return StreamingResponse(_events(box, config, timeout_s), media_type="application/connect+json")

    def _box(self, request: Request) -> Box:
        name = request.headers["e2b-sandbox-id"]
        assert request.headers["x-access-token"] == f"token of {name}"
        return self._boxes.live[name]


async def _events(box: Box, config: dict[str, Any], timeout_s: float) -> AsyncIterator[bytes]:
    yield _envelope({"event": {"start": {"pid": 7}}})
    code, output = await box.execute([config["cmd"], *config["args"]], timeout_s)
    if code == -1:
        yield _envelope({"error": {"code": "deadline_exceeded", "message": "it took too long"}}, LAST)
        return
    yield _envelope({"event": {"data": {"stdout": b64encode(output.encode()).decode()}}})
    yield _envelope({"event": {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}}})
    yield _envelope({}, LAST)


def _envelope(message: dict[str, Any], flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


@asynccontextmanager
async def fake_e2b() -> AsyncGenerator[Boxes]:
    async with anyio.create_task_group() as tasks:
        boxes = Boxes(tasks)
        e2b = _E2B(boxes)
        routes = [
            Route("/v2/sandboxes", e2b.create, methods=["POST"]),
            Route("/sandboxes/{name}", e2b.delete, methods=["DELETE"]),
            Route("/health", e2b.health),
            Route("/files", e2b.upload, methods=["POST"]),
            Route("/process.Process/Start", e2b.start, methods=["POST"]),
        ]
        async with served(Starlette(routes=routes, exception_handlers=GONE), boxes):
            yield boxes
        tasks.cancel_scope.cancel()
