"""Starting a process without losing it to a cancellation."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import IO

import anyio
from anyio.abc import Process

SPAWN_S = 30.0


async def spawn(
    arguments: Sequence[str], *, stderr: int | IO[bytes] | None = subprocess.PIPE, pass_fds: Sequence[int] = ()
) -> Process:
    """A process in a session of its own with pipes for stdin and stdout. Raises OSError.

    Cancelling waits until the process exists and returns it, because a cancelled `open_process` would leak it: the
    caller must end it in a `finally` that follows at once.
    """
    with anyio.fail_after(SPAWN_S, shield=True):
        return await anyio.open_process(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=pass_fds,
        )
