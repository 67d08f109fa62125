"""A stand-in for one sandbox of a provider: a bubblewrap sandbox that knows nothing of obsspec."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from obsspec.sandbox.bubblewrap import find_bubblewrap
from obsspec.sandbox.spawn import spawn
from tests.sandbox.support import host_processes

SUPERVISOR = Path(__file__).with_name("supervisor.py")
PYTHON = f"{sys.base_prefix}/bin"
CLOSE_S = 5.0
MARK = f"box-of-{os.getpid()}"


class GoneError(Exception):
    """The sandbox was deleted."""


class Box:
    """Programs run at the same time, beside a first process that is not ours. Cancelling leaves them running."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._last = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = anyio.Event()
        self.closed = False

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Exit code (-1: it was killed because of the time limit) and stdout. Raises `GoneError`."""
        answer = await self._ask({"arguments": list(arguments), "timeout_s": timeout_s})
        return answer["code"], answer["output"]

    async def write(self, path: str, content: bytes) -> None:
        await self._ask({"path": path, "content": content.hex()})

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        id = self._last
        assert self._process.stdin is not None
        with anyio.CancelScope(shield=True):
            try:
                await self._process.stdin.send(json.dumps({"id": id, **request}).encode() + b"\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise GoneError from error
        while id not in self._answers:
            if self.closed:
                raise GoneError
            await self._news.wait()
        return self._answers.pop(id)

    async def read(self) -> None:
        """Until `close`, whatever is cancelled."""
        assert self._process.stdout is not None
        lines = BufferedByteReceiveStream(self._process.stdout)
        try:
            while True:
                with anyio.CancelScope(shield=True):
                    line = await lines.receive_until(b"\n", 1 << 28)
                answer = json.loads(line)
                self._answers[answer["id"]] = answer
                self._tell()
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.closed = True
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def close(self) -> None:
        self.closed = True
        assert self._process.stdin is not None
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._process.stdin.aclose()
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
        with anyio.CancelScope(shield=True):
            await self._process.aclose()
        self._tell()


async def start_box(tasks: TaskGroup, path: str = f"{PYTHON}:/usr/bin:/bin") -> Box:
    """It lives until `close`. `path`: where its programs are looked for.

    It takes requests when it is returned: bubblewrap leaves its child behind if it is killed while it starts.
    """
    places = [part for name in ("/tmp", "/var/tmp", "/home", "/run") for part in ("--tmpfs", name)]
    arguments = [
        *(str(find_bubblewrap()), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
        *("--die-with-parent", "--uid", "1000", "--gid", "1000", "--clearenv", "--setenv", "PATH", path),
        *("--setenv", "HOME", "/home/image", "--setenv", "QUOTE", "it's\n"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *places, "--chdir", "/tmp"),
        *("--ro-bind", str(SUPERVISOR), "/run/supervisor.py"),
        *(f"{PYTHON}/python3", "-I", "/run/supervisor.py", MARK),
    ]
    box = Box(await spawn(arguments, stderr=None))
    tasks.start_soon(box.read)
    with anyio.CancelScope(shield=True):
        await box.execute(["true"], 10)
    return box


@asynccontextmanager
async def boxed(path: str = f"{PYTHON}:/usr/bin:/bin") -> AsyncGenerator[Box]:
    async with anyio.create_task_group() as tasks:
        box = await start_box(tasks, path)
        try:
            yield box
        finally:
            await box.close()
            tasks.cancel_scope.cancel()


def boxes() -> int:
    """How many processes of boxes of this process live."""
    return len(host_processes(MARK))
