"""A sandbox server as a process: `python -m obsspec.sandbox.server --port 0 --latency constant:1.69`.

Prints one JSON line, {"url": ..} or {"error": ..}, and serves on the loopback interface until SIGINT, SIGTERM, or, with
--until-eof, the end of its stdin. Leaving closes every sandbox. It has no authentication: whoever reaches the port can
run commands inside sandboxes, and only there.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import anyio
import uvicorn

from obsspec.sandbox import bubblewrap, canonical, latency, rootfs, wire
from obsspec.sandbox.application import Sandboxes
from obsspec.sandbox.latency import LatencySpec
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.profile import parse_profile
from obsspec.values import ConfigError

HOST = "127.0.0.1"
GRACE_S = 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        bubblewrap.find_bubblewrap()
        rootfs.root_directory()
        transport = LatencySpec.parse(options.latency)
        profile = parse_profile(options.determinism)
        sandboxes = LocalSandboxes(options.timeout_s, options.max_characters, _limits(options.limits), profile)
        listener = listen(options.port)
    except ConfigError as error:
        _say({"error": str(error)})
        return 2
    about: wire.Json = {
        "latency": str(transport),
        "timeout_s": options.timeout_s,
        "max_characters": options.max_characters,
        "determinism": options.determinism,
    }
    with listener, suppress(KeyboardInterrupt):
        _say({"url": f"http://{HOST}:{listener.getsockname()[1]}", **about})
        anyio.run(_serve, listener, sandboxes, transport, about, options.until_eof)
    return 0


def _limits(text: str) -> Limits:
    try:
        return Limits(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"--limits {text} is not understood ({error}): write {json.dumps(asdict(Limits()))}"
        ) from error


def listen(port: int) -> socket.socket:
    """A bound socket; 0 means any free port. Raises `ConfigError`."""
    # named TCP, or asyncio leaves Nagle's delay on for all connections
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of the sandbox server is in use: choose another, or 0 for any") from error
        raise ConfigError(f"the sandbox server cannot listen on port {port} ({error}): choose another") from error
    return listener


async def _serve(
    listener: socket.socket, local: LocalSandboxes, transport: LatencySpec, about: wire.Json, until_eof: bool
) -> None:
    async with anyio.create_task_group() as tasks:
        application = Sandboxes(tasks, local, transport, about).application()
        server = uvicorn.Server(
            uvicorn.Config(
                application,
                loop="asyncio",
                http="h11",
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        if until_eof:
            tasks.start_soon(_stop_at_eof, server)
        await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def _stop_at_eof(server: uvicorn.Server) -> None:
    stdin = sys.stdin.fileno()
    while True:
        await anyio.wait_readable(stdin)
        if not os.read(stdin, 4096):
            break
    server.should_exit = True


def _say(message: wire.Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m obsspec.sandbox.server", description="Serve sandboxes over HTTP.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on the loopback interface; 0 takes a free one")
    parser.add_argument(
        "--latency", default=latency.REFERENCE, help="added to each execute: constant:S, uniform:A,B, .."
    )
    parser.add_argument("--timeout-s", type=float, default=30.0, help="seconds that one command may take")
    parser.add_argument("--max-characters", type=int, default=canonical.MAX_CHARACTERS, help="of one observation")
    parser.add_argument("--limits", default="{}", help='JSON, for example {"disk_bytes": 1000000}')
    parser.add_argument("--determinism", default="standard", help="what is the same each time: off, standard, strict")
    parser.add_argument("--until-eof", action="store_true", help="stop when stdin ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
