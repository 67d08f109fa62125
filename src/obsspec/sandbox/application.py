"""The HTTP surface of a sandbox server.

    GET    /health                    what the server is and how many sandboxes it holds
    PUT    /sandboxes/{id}            open one from a spec; the client chooses the id, so it may be repeated
    POST   /sandboxes/{id}/execute    {"sequence": n, "command": text} -> an observation
    POST   /sandboxes/{id}/execute_if {"command": text, "after": n, "digest": h} -> an observation | {"refused": why}
    GET    /sandboxes/{id}/tree       every path under HOME
    DELETE /sandboxes/{id}            close; answers when no process is left

Errors are {"error": one line, "kind": "config" | "sandbox" | "request"}. A client that hangs up during `execute` kills
what runs, unless another request waits for the same call. One that hangs up during `execute_if` withdraws the call if
it has not begun; if it has, it goes on, and the same request gets its answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from obsspec.sandbox import wire
from obsspec.sandbox.latency import LatencySpec
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.room import Room
from obsspec.values import ConfigError, Observation, Refused, SandboxError

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
        room = self._room(request)
        return await _while_connected(request, lambda: room.execute(sequence, call))

    async def _execute_if(self, request: Request) -> Response:
        call, guard = wire.guarded_from_json(await request.json())
        room = self._room(request)
        return await _while_connected(request, lambda: room.execute_if(call, guard))

    async def _tree(self, request: Request) -> Response:
        return _json(wire.tree_to_json(await self._room(request).tree()))

    def _room(self, request: Request) -> Room:
        try:
            return self._rooms[_name(request)]
        except KeyError:
            raise SandboxError(f"no sandbox {_name(request)!r} on this server") from None


async def _while_connected(request: Request, ask: Callable[[], Awaitable[Observation | Refused]]) -> Response:
    """The answer, unless the client hangs up: that cancels."""
    answer = Response(status_code=ABANDONED)
    failure: SandboxError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_disconnect, request, tasks.cancel_scope)
        try:
            answer = _json(wire.answer_to_json(await ask()))
        except SandboxError as error:  # leaves the group as itself, not inside an exception group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return answer


async def _cancel_on_disconnect(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _name(request: Request) -> str:
    return str(request.path_params["id"])


def _json(data: Any, status: int = 200) -> Response:
    return Response(wire.dump(data), status, media_type="application/json")


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=ABANDONED)


async def _refuse(request: Request, error: Exception) -> Response:
    status, kind = 400, "request"
    if isinstance(error, ConfigError):
        status, kind = 503, "config"
    elif isinstance(error, SandboxError):
        status, kind = 502, "sandbox"
    return _json({"error": f"{error}" if kind != "request" else f"malformed request: {error!r}", "kind": kind}, status)
