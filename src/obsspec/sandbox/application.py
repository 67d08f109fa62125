"""The HTTP surface of a sandbox server.

    GET    /health                    what the server is and how many sandboxes it holds
    PUT    /sandboxes/{id}            open one from a spec; the client chooses the id, so it may be repeated
    POST   /sandboxes/{id}/execute    {"sequence": n, "command": text} -> an observation
    POST   /sandboxes/{id}/execute_if {"command": text, "after": n, "digest": h} -> an observation | {"refused": why}
           Both with "stream": true: lines, {"begins": text} while the command runs, the last one the answer or an error
    GET    /sandboxes/{id}/tree       every path under HOME
    DELETE /sandboxes/{id}            close; answers when no process is left

Errors are {"error": one line, "kind": "config" | "sandbox" | "request"}. A client that hangs up during `execute` kills
what runs, unless another request waits for the same call. One that hangs up during `execute_if` withdraws the call if
it has not begun; if it has, it goes on, and the same request gets its answer.
"""

from __future__ import annotations

from typing import Any

import anyio
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from obsspec.sandbox import wire
from obsspec.sandbox.execution import Execution
from obsspec.sandbox.latency import LatencySpec
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.room import Room
from obsspec.values import ConfigError, SandboxError

ABANDONED = 499  # nobody reads this answer


class Sandboxes:
    """All rooms of one server. They live in `tasks` and end with it."""

    def __init__(self, tasks: TaskGroup, local: LocalSandboxes, latency: LatencySpec, about: wire.Json) -> None:
        self._tasks = tasks
        self._local = local
        self._latency = latency
        self._about = about
        self._rooms: dict[str, Room] = {}

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/sandboxes/{id}", self._open, methods=["PUT"]),
                Route("/sandboxes/{id}", self._close, methods=["DELETE"]),
                Route("/sandboxes/{id}/execute", self._execute, methods=["POST"]),
                Route("/sandboxes/{id}/execute_if", self._execute_if, methods=["POST"]),
                Route("/sandboxes/{id}/tree", self._tree),
            ],
            exception_handlers={
                ClientDisconnect: _nobody,
                ConfigError: _refuse,
                SandboxError: _refuse,
                KeyError: _refuse,
                TypeError: _refuse,
                ValueError: _refuse,
            },
        )

    async def _health(self, request: Request) -> Response:
        return _json({**self._about, "sandboxes": len(self._rooms)})

    async def _open(self, request: Request) -> Response:
        name = _name(request)
        spec = wire.spec_from_json(await request.json())
        if name not in self._rooms:
            self._rooms[name] = Room(self._local, spec, self._latency)
            self._tasks.start_soon(self._rooms[name].live)
        await self._rooms[name].ready()
        return _json({"id": name})

    async def _close(self, request: Request) -> Response:
        room = self._rooms.pop(_name(request), None)
        if room is not None:
            await room.close()
        return _json({})

    async def _execute(self, request: Request) -> Response:
        data = await request.json()
        sequence, call = int(data["sequence"]), wire.shell_call(data["command"])
        execution = await self._room(request).execute(sequence, call)
        return await _answer(request, execution, stream=bool(data.get("stream")))

    async def _execute_if(self, request: Request) -> Response:
        data = await request.json()
        execution = await self._room(request).execute_if(*wire.guarded_from_json(data))
        return await _answer(request, execution, stream=bool(data.get("stream")))

    async def _tree(self, request: Request) -> Response:
        return _json(wire.tree_to_json(await self._room(request).tree()))

    def _room(self, request: Request) -> Room:
        try:
            return self._rooms[_name(request)]
        except KeyError:
            raise SandboxError(f"no sandbox {_name(request)!r} on this server") from None


async def _answer(request: Request, execution: Execution, *, stream: bool) -> Response:
    """The answer, unless the client hangs up: that cancels."""
    if stream:
        return _Lines(execution)
    answer = Response(status_code=ABANDONED)
    failure: SandboxError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_disconnect, request.receive, tasks.cancel_scope)
        try:
            answer = _json(wire.answer_to_json(await execution.wait()))
        except SandboxError as error:  # leaves the group as itself, not inside an exception group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return answer


class _Lines(Response):
    """How the answer begins, line by line as far as that is known, and then the answer."""

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        self._execution = execution

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def line(data: wire.Json, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": wire.dump(data) + b"\n", "more_body": more})

        headers = [(b"content-type", b"application/x-ndjson")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                last = wire.answer_to_json(await self._execution.wait(lambda text: line({"begins": text})))
            except SandboxError as error:
                last = _error(error)
            await line(last, more=False)
            tasks.cancel_scope.cancel()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _name(request: Request) -> str:
    return str(request.path_params["id"])


def _json(data: Any, status: int = 200) -> Response:
    return Response(wire.dump(data), status, media_type="application/json")


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=ABANDONED)


async def _refuse(request: Request, error: Exception) -> Response:
    data = _error(error)
    return _json(data, {"config": 503, "sandbox": 502}.get(data["kind"], 400))


def _error(error: Exception) -> wire.Json:
    if isinstance(error, ConfigError):
        return {"error": str(error), "kind": "config"}
    if isinstance(error, SandboxError):
        return {"error": str(error), "kind": "sandbox"}
    return {"error": f"malformed request: {error!r}", "kind": "request"}
