"""The processes of the sandbox, seen from its process number 1."""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PASSES = 200


def living() -> Iterator[tuple[int, int]]:
    """(process, session) of every process but this one; zombies are left out."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if fields[0] not in (b"Z", b"X"):
            yield int(name), int(fields[3])


def sessions() -> set[int]:
    return {session for _, session in living()}


def kill_outside(spared: set[int]) -> None:
    """Kill every process whose session is not in `spared`, until none is left.

    A command runs in a session of its own, so sparing the sessions from before it leaves earlier background jobs
    alone. Processes that fork faster than they can be found are ended together with everything else.
    """
    for _ in range(PASSES):
        victims = [process for process, session in living() if session not in spared]
        if not victims:
            return
        for process in victims:
            _kill(process)
        time.sleep(0.001)
    _kill(-1)


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def reap() -> dict[int, int]:
    """Exit codes (128 + number for a signal) of the children that ended, orphans included."""
    ended: dict[int, int] = {}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if process == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[process] = code if code >= 0 else 128 - code
