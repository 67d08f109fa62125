"""A sandbox server as a child process."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from obsspec.sandbox import canonical, latency
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.remote import RemoteSandboxes
from obsspec.sandbox.spawn import spawn
from obsspec.values import ConfigError

START_S = 60.0
STOP_S = 10.0
MAX_LINE = 1 << 16


@asynccontextmanager
async def serve_sandboxes(
    *,
    port: int = 0,
    latency: str = latency.REFERENCE,
    timeout_s: float = 30.0,
    max_characters: int = canonical.MAX_CHARACTERS,
    limits: Limits | None = None,
    determinism: str = "standard",
) -> AsyncGenerator[RemoteSandboxes]:
    """Start a server, hand out its sandboxes, stop it. `latency` as in `LatencySpec.parse`.

    Raises `ConfigError`. The server holds on to our end of its stdin: it stops when we leave, and also when we are
    killed. Its sandboxes end with it, also when it is killed.
    """
    arguments = [sys.executable, "-m", "obsspec.sandbox.server", "--until-eof"]
    arguments += ["--port", str(port), "--latency", latency, "--timeout-s", str(timeout_s)]
    arguments += ["--max-characters", str(max_characters), "--limits", json.dumps(asdict(limits or Limits()))]
    arguments += ["--determinism", determinism]
    process = await spawn(arguments, stderr=None)
    try:
        yield RemoteSandboxes(await _address(process))
    finally:
        await _stop(process)


async def _address(process: Process) -> str:
    assert process.stdout is not None
    try:
        with anyio.fail_after(START_S):
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", MAX_LINE)
    except (TimeoutError, anyio.IncompleteRead) as error:
        raise ConfigError(
            "the sandbox server did not start: run `python -m obsspec.sandbox.server` to see why"
        ) from error
    message = json.loads(line)
    if "error" in message:
        raise ConfigError(message["error"])
    return message["url"]


async def _stop(process: Process) -> None:
    assert process.stdin is not None
    with anyio.move_on_after(STOP_S, shield=True):
        await process.stdin.aclose()
        await process.wait()
    if process.returncode is None:
        process.kill()
    with anyio.CancelScope(shield=True):
        await process.aclose()
