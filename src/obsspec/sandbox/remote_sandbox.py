"""One sandbox on a server."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import httpx2

from obsspec.protocols import Hear
from obsspec.sandbox import wire
from obsspec.sandbox.spec import SandboxSpec, Tree
from obsspec.values import ConfigError, Guard, Observation, Refused, SandboxError, ToolCall

ATTEMPTS = 3
PAUSE_S = 0.2
CLOSE_S = 10.0


class RemoteSandbox:
    """A `TerminalSandbox` over HTTP. `log` holds every command of the policy, in order.

    Every request may be repeated: the id is ours and calls are numbered, so a request whose answer was lost is sent
    again and still runs once. Cancelling `execute` drops the connection, which kills what runs on the server. Guarded
    calls have connections of their own and wait on the server.
    """

    def __init__(self, client: httpx2.AsyncClient, name: str) -> None:
        self.log: list[str] = []
        self._client = client
        self._path = f"/sandboxes/{name}"
        self._turn = anyio.Lock()
        self._sequence = 0  # of the last command that is known to have been sent, or to have run ahead
        self._numbers: list[int] = []  # of the commands in `log`
        self._hear: Hear | None = None

    async def open(self, spec: SandboxSpec) -> None:
        await self._ask("PUT", "", wire.spec_to_json(spec))

    async def execute(self, call: ToolCall) -> Observation:
        """Run `call.command` in the shell. Raises `SandboxError` if the sandbox or the way to it fails."""
        async with self._turn:
            self._note(self._sequence + 1, call)
            data = {"sequence": self._sequence, "command": call.command}
            return wire.observation_from_json(await self._ask_to_run(self._sequence, "/execute", data))

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        """As `GuardedSandbox.execute_if`. The answer may come before those of earlier commands."""
        data = wire.guarded_to_json(call, guard)
        answer = wire.answer_from_json(await self._ask_to_run(guard.after + 1, "/execute_if", data))
        if isinstance(answer, Observation):
            self._note(guard.after + 1, call)
        return answer

    def listen(self, hear: Hear) -> None:
        """As `StreamingSandbox.listen`."""
        self._hear = hear

    def _note(self, number: int, call: ToolCall) -> None:
        """Command `number` was sent, or ran ahead."""
        self._sequence = max(self._sequence, number)
        at = bisect_left(self._numbers, number)
        if self._numbers[at : at + 1] != [number]:
            self._numbers.insert(at, number)
            self.log.insert(at, call.command)

    async def tree(self) -> Tree:
        async with self._turn:
            return wire.tree_from_json(await self._ask("GET", "/tree"))

    async def close(self) -> None:
        """Returns when no process of the sandbox is left, or the server does not answer for 10 s."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            try:
                await self._ask("DELETE", "")
            except (SandboxError, ConfigError):
                return  # a server that has gone has taken its sandboxes along

    async def _ask(self, method: str, path: str, data: wire.Json | None = None) -> Any:
        content = None if data is None else wire.dump(data)

        async def once() -> Any:
            return _result(await self._client.request(method, self._path + path, content=content))

        return await self._insist(once)

    async def _ask_to_run(self, number: int, path: str, data: wire.Json) -> Any:
        """Command `number`, told of while it runs if somebody listens."""
        hear = self._hear
        if hear is None:
            return await self._ask("POST", path, data)
        content = wire.dump({**data, "stream": True})

        async def once() -> Any:
            async with self._client.stream("POST", self._path + path, content=content) as response:
                if response.status_code != 200:
                    await response.aread()
                    return _result(response)
                message: wire.Json = {"error": "the sandbox server gave no answer"}
                async for line in response.aiter_lines():
                    message = json.loads(line)
                    if "begins" in message:
                        hear(number, message["begins"])
                return _checked(message)

        return await self._insist(once)

    async def _insist(self, once: Callable[[], Awaitable[Any]]) -> Any:
        """Again, where the way there or back failed."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await once()
            except httpx2.TransportError as error:
                if attempt == ATTEMPTS or isinstance(error, httpx2.TimeoutException):
                    reason = str(error) or type(error).__name__
                    raise SandboxError(f"the sandbox server at {self._client.base_url} failed: {reason}") from error
            await anyio.sleep(PAUSE_S * attempt)
        raise AssertionError("unreachable")


def _result(response: httpx2.Response) -> wire.Json:
    """Its body, unless it says that something went wrong: that is raised."""
    try:
        data: Any = response.json()
    except ValueError:
        data = None
    if isinstance(data, dict) and (response.status_code == 200 or "error" in data):
        return _checked(cast("wire.Json", data))
    raise SandboxError(f"HTTP {response.status_code} from the sandbox server")


def _checked(data: wire.Json) -> wire.Json:
    if "error" not in data:
        return data
    raise (ConfigError if data.get("kind") == "config" else SandboxError)(str(data["error"]))
