"""Requests to the runner in a provider's sandbox, over executions that may be lost, late, repeated or cut off."""

from __future__ import annotations

import json
from collections.abc import Iterable

import anyio

from obsspec.sandbox.inside.runner import MARK
from obsspec.sandbox.providers.bundle import PROGRAM, runner
from obsspec.sandbox.providers.machine import Executed, LostError, Machine
from obsspec.sandbox.wire import Json, dump
from obsspec.values import ConfigError, SandboxError

ATTEMPTS = 4
PAUSE_S = 0.3
WAIT_S = 25.0  # an execution ends after this time, whether the answer is there or not
OVERHEAD_S = 30.0  # beyond that, for the way there and back
START_S = 60.0
LONGEST = 60_000  # characters of a request on a command line; the kernel allows 131,072 bytes
COMMAND = ("python3", "-I", "-S", PROGRAM)
NO_PYTHON = 127


class Runner:
    """Numbers requests and repeats them until they are answered. Requests may be under way together."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._last = 0
        self._withdrawn: set[int] = set()

    async def start(self) -> None:
        """Upload it and start it. Raises `ConfigError` if the image has no Python, `SandboxError`."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with anyio.fail_after(START_S):
                    await self._machine.write(PROGRAM, runner())
                executed = await self._execute(["start"], START_S)
                if executed.exit_code == NO_PYTHON:
                    raise ConfigError("the sandbox has no python3: use an image that has one, 3.8 or later")
                _result(_answer(executed))
                return
            except (LostError, TimeoutError) as error:
                if attempt == ATTEMPTS:
                    raise SandboxError(f"the runner did not start in the sandbox: {_reason(error)}") from error
            await anyio.sleep(PAUSE_S * attempt)

    async def ask(self, request: Json) -> Json:
        """The answer. Raises `SandboxError`; a request that is cancelled, or not answered, is withdrawn.

        The next request tells the runner so before anything else; `tell_withdrawn` does it at once.
        """
        self._last += 1
        id = self._last
        try:
            answer = await self._repeat(id, request)
        except BaseException:
            self._withdrawn.add(id)
            raise
        return _result(answer)

    async def tell_withdrawn(self) -> None:
        """Best effort: does not raise `SandboxError`."""
        if self._withdrawn:
            try:
                await self.ask({})
            except SandboxError:
                return

    async def _repeat(self, id: int, request: Json) -> Json:
        failures = 0
        while True:
            withdrawn = sorted(self._withdrawn)
            message = dump({"id": id, "wait_s": WAIT_S, "withdrawn": withdrawn, **request}).decode()
            try:
                answer = _answer(await self._execute(["call", await self._short(id, message)], WAIT_S + OVERHEAD_S))
            except (LostError, TimeoutError) as error:
                failures += 1
                if failures == ATTEMPTS:
                    raise SandboxError(f"no answer from the sandbox: {_reason(error)}") from error
                await anyio.sleep(PAUSE_S * failures)
                continue
            self._withdrawn.difference_update(withdrawn)
            if "pending" not in answer:
                return answer
            failures = 0

    async def _short(self, id: int, message: str) -> str:
        if len(message) <= LONGEST:
            return message
        path = f"{PROGRAM.removesuffix('.pyz')}/request-{id}"
        with anyio.fail_after(START_S):
            await self._machine.write(path, message.encode())
        return f"@{path}"

    async def _execute(self, arguments: Iterable[str], timeout_s: float) -> Executed:
        with anyio.fail_after(timeout_s + OVERHEAD_S):  # of ours, should the provider not keep his
            return await self._machine.execute([*COMMAND, *arguments], timeout_s)


def _answer(executed: Executed) -> Json:
    """What the runner printed. Raises `LostError` if it did not come to that."""
    for line in reversed(executed.output.splitlines()):
        if line.startswith(MARK):
            try:
                return json.loads(line[len(MARK) :])
            except ValueError as error:
                raise LostError("the answer was cut off on the way") from error
    raise LostError(f"exit code {executed.exit_code}: {executed.output.strip()[-200:] or 'no output'}")


def _result(answer: Json) -> Json:
    if "error" in answer:
        raise SandboxError(str(answer["error"]))
    return answer


def _reason(error: Exception) -> str:
    return str(error) or "it took too long"
