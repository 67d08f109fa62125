"""The life of one bubblewrap process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import anyio
from anyio.abc import Process

from obsspec.sandbox import bubblewrap, identity
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.spawn import spawn
from obsspec.values import ConfigError, SandboxError

HANDSHAKE_S = 10.0
CLOSE_S = 3.0

_making = threading.Lock()
Arguments = Callable[[Sequence[str]], list[str]]  # options of bubblewrap in, its whole command line out


@asynccontextmanager
async def launched(
    limits: Limits, control: int | None = None, arguments: Arguments | None = None
) -> AsyncGenerator[Process]:
    """A bubblewrap process with the init of a new sandbox behind its stdin and stdout. Raises `ConfigError`.

    `control`: a socket to hand to the forker, for a sandbox with forks.

    `arguments`: the command line of another kind of sandbox, given the options that its users need.

    Leaving ends the init, and with it, as it is number 1, every process of the sandbox.
    """
    process, pending = await _start(arguments or partial(bubblewrap.arguments, limits, control=control), control)
    try:
        if pending is not None:
            await _map_users(*pending)
        yield process
    finally:
        await _end(process)


async def _start(arguments: Arguments, control: int | None) -> tuple[Process, tuple[int, int] | None]:
    """With two users: also where bubblewrap reports its child, and where it waits for the mapping."""
    inherited = () if control is None else (control,)
    if not identity.two_users():
        return await _spawn(await _line(arguments, ()), inherited), None
    info, info_end = os.pipe()
    ready_end, ready = os.pipe()
    with ExitStack() as on_failure:
        for fd in (info, ready):
            on_failure.callback(os.close, fd)
        try:
            extra = ["--info-fd", str(info_end), "--userns-block-fd", str(ready_end)]
            process = await _spawn(await _line(arguments, extra), (info_end, ready_end, *inherited))
        finally:
            os.close(info_end)
            os.close(ready_end)
        on_failure.pop_all()
    return process, (info, ready)


async def _line(arguments: Arguments, extra: Sequence[str]) -> list[str]:
    """Off the event loop, one at a time: the first one makes the root directory that all sandboxes share."""

    def make() -> list[str]:
        with _making:
            return arguments(extra)

    return await anyio.to_thread.run_sync(make)


async def _map_users(info: int, ready: int) -> None:
    """Bubblewrap has made a user namespace: map two users into it and let bubblewrap go on.

    No message means that bubblewrap has failed; why stands on its stderr. Not to be interrupted: a bubblewrap that is
    killed before its child may go on leaves that child behind, waiting for ever.
    """
    try:
        message = b""
        with anyio.fail_after(HANDSHAKE_S, shield=True):
            while not message.endswith(b"}\n"):
                await anyio.wait_readable(info)
                if not (chunk := os.read(info, 4096)):
                    return
                message += chunk
        identity.write_maps(json.loads(message)["child-pid"])
        os.write(ready, b"1")
    except TimeoutError as error:
        raise SandboxError(f"bubblewrap did not start within {HANDSHAKE_S:g} s") from error
    finally:
        os.close(info)
        os.close(ready)


async def _spawn(arguments: list[str], pass_fds: tuple[int, ...]) -> Process:
    try:
        return await spawn(arguments, pass_fds=pass_fds)
    except OSError as error:
        raise ConfigError(f"cannot start {arguments[0]} ({error.strerror}): {bubblewrap.INSTALL}") from error


async def _end(process: Process) -> None:
    """The end of its stdin ends the init, however far it has come. Killing is for an init that does not answer."""
    assert process.stdin is not None
    with anyio.move_on_after(CLOSE_S, shield=True):
        await process.stdin.aclose()
        await process.wait()
    if process.returncode is None:
        process.kill()
    with anyio.move_on_after(CLOSE_S, shield=True):
        await process.aclose()
