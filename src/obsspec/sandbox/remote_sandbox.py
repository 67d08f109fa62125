"""One sandbox on a server."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import anyio
import httpx2

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

    async def open(self, spec: SandboxSpec) -> None:
        await self._ask("PUT", "", wire.spec_to_json(spec))

    async def execute(self, call: ToolCall) -> Observation:
        """Run `call.command` in the shell. Raises `SandboxError` if the sandbox or the way to it fails."""
        async with self._turn:
            self._note(self._sequence + 1, call)
            data = {"sequence": self._sequence, "command": call.command}
            return wire.observation_from_json(await self._ask("POST", "/execute", data))

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        """As `GuardedSandbox.execute_if`. The answer may come before those of earlier commands."""
        answer = wire.answer_from_json(await self._ask("POST", "/execute_if", wire.guarded_to_json(call, guard)))
        if isinstance(answer, Observation):
            self._note(guard.after + 1, call)
        return answer

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
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = await self._client.request(method, self._path + path, content=content)
                return _result(response)
            except httpx2.TransportError as error:
                if attempt == ATTEMPTS or isinstance(error, httpx2.TimeoutException):
                    reason = str(error) or type(error).__name__
                    raise SandboxError(f"the sandbox server at {self._client.base_url} failed: {reason}") from error
            await anyio.sleep(PAUSE_S * attempt)
        raise AssertionError("unreachable")


def _result(response: httpx2.Response) -> Any:
    if response.status_code == 200:
        return response.json()
    try:
        data = response.json()
        message, kind = str(data["error"]), str(data["kind"])
    except (ValueError, KeyError, TypeError):
        message, kind = f"HTTP {response.status_code} from the sandbox server", "sandbox"
    raise (ConfigError if kind == "config" else SandboxError)(message)
