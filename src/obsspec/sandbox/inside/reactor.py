"""Waiting for requests, output and the end of processes, in one place and one thread."""

from __future__ import annotations

import os
import select
import signal

from . import processes
from .collect import CHUNK, Stream
from .frames import Decoder

CONTROL = 0
MAX_STREAMS = 256


class Reactor:
    """`wait` returns after something happened; what happened is in `frames`, `ended` and the streams."""

    def __init__(self) -> None:
        self.frames: list[list[bytes]] = []
        self.ended: dict[int, int] = {}
        self.closed = False  # the owner has gone
        self._streams: dict[int, Stream] = {}
        self._decoder = Decoder()
        self._poll = select.poll()
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a command may send it; the others are ignored by number 1 anyway
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(CONTROL, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def watch(self, stream: Stream) -> None:
        """Read `stream` until it ends. Of too many, the oldest is closed."""
        if len(self._streams) >= MAX_STREAMS:
            self._forget(next(iter(self._streams)))
        self._streams[stream.fd] = stream
        self._poll.register(stream.fd, select.POLLIN)

    def wait(self, seconds: float | None) -> None:
        events = self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        for fd, _ in events:
            if fd == CONTROL:
                self._read_control()
            elif fd == self._woken:
                self._read_wake()
            else:
                self._read_stream(fd)

    def _read_control(self) -> None:
        data = os.read(CONTROL, CHUNK)
        self.closed = not data
        self.frames += self._decoder.feed(data)

    def _read_wake(self) -> None:
        os.read(self._woken, CHUNK)
        self.ended.update(processes.reap())

    def _read_stream(self, fd: int) -> None:
        stream = self._streams[fd]
        stream.read()
        if not stream.open:
            self._forget(fd)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._streams.pop(fd).close()


def _ignore(number: int, frame: object) -> None:
    """A handler, so that the signal writes to the wake-up pipe."""
