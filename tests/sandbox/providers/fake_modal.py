"""A stand-in for Modal: what the adapter uses of its package, as objects. Calls go by `aio`, as the package's do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
from modal import exception

from tests.sandbox.providers.box import Box, GoneError
from tests.sandbox.providers.serving import Boxes


def by_aio(function: Callable[..., Any]) -> Any:
    """Only callable as `f.aio(...)`: the plain call would block the event loop."""
    return SimpleNamespace(aio=function)


class _Process:
    """Executes as soon as it is made; the stream ends when the program does, or its time is over."""

    def __init__(self, box: Box, arguments: tuple[str, ...], timeout_s: float) -> None:
        self._execution = box, arguments, timeout_s
        self._code = 0
        self.stdout = SimpleNamespace(read=by_aio(self._read))
        self.wait = by_aio(self._wait)

    async def _read(self) -> str:
        box, arguments, timeout_s = self._execution
        try:
            self._code, output = await box.execute(arguments, timeout_s)
        except GoneError as error:
            raise exception.NotFoundError("the sandbox has gone") from error
        return output

    async def _wait(self) -> int:
        return self._code


class _Sandbox:
    def __init__(self, boxes: Boxes, name: str) -> None:
        self._boxes = boxes
        self._name = name
        self.exec = by_aio(self._exec)
        self.terminate = by_aio(self._terminate)
        self.filesystem = SimpleNamespace(write_bytes=by_aio(self._write))

    async def _exec(self, *arguments: str, timeout: int) -> _Process:  # noqa: ASYNC109 - its name there
        if self._boxes.fails():
            raise exception.ConnectionError("planned")
        return _Process(self._box(), arguments, timeout)

    async def _write(self, content: bytes, path: str) -> None:
        await self._box().write(path, content)

    async def _terminate(self) -> None:
        await self._boxes.end(self._name)

    def _box(self) -> Box:
        try:
            return self._boxes.live[self._name]
        except KeyError:
            raise exception.NotFoundError("the sandbox has gone") from None


class FakeModal:
    """In place of the module. `refuse` is raised when an app is looked for."""

    exception = exception

    def __init__(self, boxes: Boxes) -> None:
        self.refuse: Exception | None = None
        self._boxes = boxes
        self.App = SimpleNamespace(lookup=by_aio(self._lookup))
        self.Sandbox = SimpleNamespace(create=by_aio(self._create))

    async def _lookup(self, name: str, *, create_if_missing: bool) -> str:
        if self.refuse is not None:
            raise self.refuse
        return f"app {name} {create_if_missing}"

    async def _create(self, **asked: Any) -> _Sandbox:
        return _Sandbox(self._boxes, await self._boxes.make(asked))


@asynccontextmanager
async def fake_modal() -> AsyncGenerator[tuple[FakeModal, Boxes]]:
    async with anyio.create_task_group() as tasks:
        boxes = Boxes(tasks)
        yield FakeModal(boxes), boxes
        for name in list(boxes.live):
            await boxes.end(name)
        tasks.cancel_scope.cancel()
