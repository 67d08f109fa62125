"""One command from its start to the moment its result is known."""

from __future__ import annotations

import math
import time

from . import processes
from .collect import Stream
from .reactor import Reactor
from .shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TOLD_BYTES = 1 << 15  # of each command, before it ends: less than a pipe holds, so that telling never blocks
TELL_S = 0.01
GRACE_S = 0.1  # for output that children write just after the shell has ended
TIMEOUT_CODE = 124


class Teller:
    """Tells whole lines of stdout while the command runs, as they come, but not more often than every 10 ms."""

    def __init__(self, out: Stream, tell: Callable[[bytes], None]) -> None:
        self._out = out
        self._tell = tell
        self._told = 0
        self._next_s = 0.0

    def go_on(self, now_s: float) -> float:
        """Tell what there is. Returns when there may be something that is only to be told then."""
        lines = self._out.lines(self._told, TOLD_BYTES)
        if not lines:
            return math.inf
        if now_s >= self._next_s:
            self._tell(lines)
            self._told += len(lines)
            self._next_s = now_s + TELL_S
        return self._next_s


class Result:
    """`clipped`: the streams are only the head of what was printed."""

    def __init__(self, exit_code: int, out: Stream, err: Stream, *, timed_out: bool, cancelled: bool) -> None:
        self.exit_code = exit_code
        self.stdout = out.head
        self.stderr = err.head
        self.clipped = out.clipped or err.clipped
        self.timed_out = timed_out
        self.cancelled = cancelled


def run(
    reactor: Reactor,
    started: Shell,
    head: int,
    timeout_s: float,
    spared: set[int],
    tell: Callable[[bytes], None] | None = None,
) -> Result:
    """Wait until the shell ends, not until its pipes do: background children may hold them for ever.

    Background children of a command that ended live on; their later output is read and dropped. When the time is over
    or the owner cancels, everything is killed but the sessions that are `spared`. `tell` gets the first lines of stdout
    while the command runs.
    """
    out, err = Stream(started.stdout, head), Stream(started.stderr, head)
    reactor.watch(out)
    reactor.watch(err)
    deadline = time.monotonic() + timeout_s
    interrupted = _wait(reactor, started.process, deadline, Teller(out, tell) if tell else None)
    timed_out = interrupted and time.monotonic() >= deadline
    if interrupted:
        processes.kill_outside(spared)
    _drain(reactor, out, err)
    code = reactor.ended.pop(started.process, TIMEOUT_CODE)
    out.discard()
    err.discard()
    return Result(
        TIMEOUT_CODE if interrupted else code,
        out,
        err,
        timed_out=timed_out,
        cancelled=interrupted and not timed_out,
    )


def _wait(reactor: Reactor, process: int, deadline: float, teller: Teller | None) -> bool:
    """True if the command must be interrupted: time over, a cancel request, or the owner has gone."""
    while process not in reactor.ended:
        if reactor.frames or reactor.closed or time.monotonic() >= deadline:
            return True
        due = teller.go_on(time.monotonic()) if teller else deadline
        reactor.wait(min(due, deadline) - time.monotonic())
    return False


def _drain(reactor: Reactor, out: Stream, err: Stream) -> None:
    end = time.monotonic() + GRACE_S
    while (out.open or err.open) and not reactor.closed and time.monotonic() < end:
        reactor.wait(end - time.monotonic())
