"""The processes of the sandbox, seen from its init: all of the machine, or its descendants if it is not number 1."""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PASSES = 200
HOSTED_S = 5.0  # on a machine that is not ours, what was killed may take its time to end
LOOKS = 5


class Seen:
    """One process as it was seen: who its parent is, and in which session it is."""

    def __init__(self, state: bytes, parent: int, session: int) -> None:
        self.parent = parent
        self.session = session
        self.ended = state in (b"Z", b"X")


def living() -> Iterator[tuple[int, int]]:
    """(process, session) of every process of the sandbox but this one; zombies are left out."""
    own = os.getpid()
    seen = _look() if own == 1 else _descendants(own)
    for process, one in seen.items():
        if process != own and not one.ended:
            yield process, one.session


def _look() -> dict[int, Seen]:
    """Everything in /proc."""
    found: dict[int, Seen] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        found[int(name)] = Seen(fields[0], int(fields[1]), int(fields[3]))
    return found


def _descendants(own: int) -> dict[int, Seen]:
    """Orphans are children of this process (`hosted`), so whoever it started has a way up to it.

    A parent that ended while /proc was read breaks the way: then everything is read again.
    """
    seen = _look()
    for _ in range(LOOKS):
        if all(one.parent in seen or one.parent == 0 for one in seen.values()):
            break
        seen = _look()
    return {process: one for process, one in seen.items() if _is_below(process, own, seen)}


def _is_below(process: int, own: int, seen: dict[int, Seen]) -> bool:
    for _ in range(len(seen)):
        if process == own:
            return True
        if process not in seen:
            return False
        process = seen[process].parent
    return False


def any_living() -> bool:
    """Whether there is any process but this one. Ended ones are forgotten: to be asked when none is waited for.

    As this is number 1, all others descend from its children, and those that it has lost to no other parent.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def sessions() -> set[int]:
    return {session for _, session in living()}


def kill_outside(spared: set[int]) -> None:
    """Kill every process whose session is not in `spared`, until none is left.

    A command runs in a session of its own, so sparing the sessions from before it leaves earlier background jobs
    alone. Processes that fork faster than they can be found are ended together with everything else; where that is
    not ours to end, RuntimeError is raised.
    """
    own = os.getpid()
    end = time.monotonic() + (0 if own == 1 else HOSTED_S)
    passes = 0
    while passes < PASSES or time.monotonic() < end:
        passes += 1
        victims = [process for process, session in living() if session not in spared]
        if not victims:
            return
        for process in victims:
            _kill(process)
        time.sleep(0.001)
    if own != 1:
        raise RuntimeError("processes start faster than they can be ended")
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
        ended[process] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
