"""What a provider has in each of its sandboxes: it executes programs and writes files on demand. Runs in a box.

Lines of JSON on stdin: {"id", "arguments", "timeout_s"} or {"id", "path", "content"}; on stdout, with the same id,
{"id", "code", "output"}.
An execution that takes too long is killed, and only the program itself: what it has started lives on, as elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any


async def execute(request: dict[str, Any]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *request["arguments"], stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), request["timeout_s"])
    except TimeoutError:
        with suppress(ProcessLookupError):  # it has just ended
            process.kill()
        return -1, ""
    return process.returncode or 0, output.decode("utf-8", "replace")


def write(request: dict[str, Any]) -> tuple[int, str]:
    path = Path(request["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes.fromhex(request["content"]))
    return 0, ""


async def answer(request: dict[str, Any]) -> None:
    try:
        code, output = write(request) if "path" in request else await execute(request)
    except FileNotFoundError as error:
        code, output = 127, f"{error}\n"
    except Exception as error:  # noqa: BLE001 - whoever asked is told
        code, output = 126, f"{error!r}\n"
    sys.stdout.write(json.dumps({"id": request["id"], "code": code, "output": output}) + "\n")
    sys.stdout.flush()


async def serve() -> None:
    reader = asyncio.StreamReader(limit=1 << 28)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a real one runs as another user, or outside
asyncio.run(serve())
