"""A stand-in for Daytona: the endpoints of its API and of the toolbox in its sandboxes that the package calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.sandbox.providers.serving import GONE, KEY, Boxes, served


class _Daytona:
    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    async def create(self, request: Request) -> Response:
        if request.headers["authorization"] != f"Bearer {KEY}":
            return JSONResponse({"message": "Unauthorized", "statusCode": 401}, 401)
        return JSONResponse(self._described(await self._boxes.make(await request.json())))

    async def get(self, request: Request) -> Response:
        name = request.path_params["name"]
        assert name in self._boxes.live
        return JSONResponse(self._described(name))

    async def delete(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not await self._boxes.end(name):
            return JSONResponse({"message": "Not Found", "statusCode": 404}, 404)
        return JSONResponse({**self._described(name), "state": "destroyed"})

    async def execute(self, request: Request) -> Response:
        """By a shell, with stdout and stderr in one."""
        asked = await request.json()
        box = self._boxes.live[request.path_params["name"]]
        if self._boxes.fails():
            return JSONResponse({"message": "Bad Gateway", "statusCode": 502}, 502)
        script = f"{{ {asked['command']}; }} 2>&1"
        code, output = await box.execute(["/bin/sh", "-c", script], asked.get("timeout") or 10)
        if code == -1:
            return JSONResponse({"message": "command execution timeout", "statusCode": 408}, 408)
        return JSONResponse({"exitCode": code, "result": output})

    async def upload(self, request: Request) -> Response:
        box = self._boxes.live[request.path_params["name"]]
        async with request.form() as form:
            for number in range(len(form) // 2):
                file: Any = form[f"files[{number}].file"]
                await box.write(str(form[f"files[{number}].path"]), await file.read())
        return JSONResponse({})

    def _described(self, name: str) -> dict[str, Any]:
        return {
            **{"id": name, "name": name, "organizationId": "o", "user": "daytona", "env": {}, "labels": {}},
            **{"public": False, "networkBlockAll": False, "kvm": False, "target": "us", "cpu": 1, "gpu": 0},
            **{"memory": 1, "disk": 1, "state": "started", "toolboxProxyUrl": f"{self._boxes.url}/toolbox"},
        }


@asynccontextmanager
async def fake_daytona() -> AsyncGenerator[Boxes]:
    async with anyio.create_task_group() as tasks:
        boxes = Boxes(tasks)
        daytona = _Daytona(boxes)
        routes = [
            Route("/sandbox", daytona.create, methods=["POST"]),
            Route("/sandbox/{name}", daytona.get),
            Route("/sandbox/{name}", daytona.delete, methods=["DELETE"]),
            Route("/toolbox/{name}/process/execute", daytona.execute, methods=["POST"]),
            Route("/toolbox/{name}/files/bulk-upload", daytona.upload, methods=["POST"]),
        ]
        async with served(Starlette(routes=routes, exception_handlers=GONE), boxes):
            yield boxes
        tasks.cancel_scope.cancel()
