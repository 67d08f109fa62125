"""One state of a REPL is one process: it forks a child to run a cell, and the child is the state after that cell."""

from __future__ import annotations

import array
import json
import os
import resource
import signal
import socket
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from obsspec.sandbox.inside.frames import Decoder, encode
else:  # where it is in the sandbox
    from inside.frames import Decoder, encode

WRITABLE = ("/home/user", "/tmp", "/dev/shm")
AGAIN_S = 0.2
WALL = 2  # a run may take this many times its limit of processor time


class State:
    """Serves requests on its socket until the other end closes it.

    A request is a frame `run, name, options, code` that carries one socket, for the child, or `kill, name`.
    """

    def __init__(self, connection: socket.socket, engines: dict[str, Any]) -> None:
        self._connection = connection
        self._engines = engines
        self._children: dict[bytes, int] = {}
        self._sockets: list[int] = []
        self._decoder = Decoder()
        self._late = False

    def serve(self) -> None:
        while True:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
            for frame in self._receive():
                if frame[0] == b"kill":
                    self._kill(frame[1])
                elif self._fork(frame):
                    break  # this is the child now; the parent answers the other frames

    def _receive(self) -> list[list[bytes]]:
        data, ancillary, _, _ = self._connection.recvmsg(1 << 16, socket.CMSG_LEN(64))
        if not data:
            os._exit(0)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self._sockets += numbers
        return self._decoder.feed(data)

    def _kill(self, name: bytes) -> None:
        process = self._children.get(name)
        if process is not None:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)

    def _fork(self, frame: list[bytes]) -> bool:
        """True in the child, after the run."""
        _, name, options, code = frame
        theirs = self._sockets.pop(0)
        try:
            process = os.fork()
        except OSError:  # too many processes: the other end sees that nobody holds the socket
            os.close(theirs)
            return False
        if process:
            os.close(theirs)
            self._children[name] = process
            return False
        self._connection.close()
        for other in self._sockets:
            os.close(other)
        self._connection = socket.socket(fileno=theirs)
        self._children, self._sockets, self._decoder = {}, [], Decoder()
        answer = json.dumps(self._run(json.loads(options), code.decode("utf-8", "surrogatepass")))
        self._connection.sendall(encode([answer.encode("utf-8", "backslashreplace")]))
        return True

    def _run(self, options: dict[str, Any], code: str) -> dict[str, Any]:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        limit = options["limit_s"]
        seconds = int(limit) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        self._late = False
        signal.signal(signal.SIGALRM, self._alarm)
        signal.signal(signal.SIGPROF, self._alarm)
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_PROF, limit, AGAIN_S)  # processor time: the same on a busy machine
        signal.setitimer(signal.ITIMER_REAL, limit * WALL, AGAIN_S)
        said: dict[str, Any] = {}
        try:
            said = self._engines[options["engine"]].run(code, options["number"])
        except BaseException as error:  # noqa: BLE001 - the alarm may come between a run and its result
            said = {"error": type(error).__name__, "message": "", "out": "", "err": ""}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        said["late"] = self._late
        said["seconds"] = time.monotonic() - began
        said["written"] = any(os.listdir(path) for path in WRITABLE)
        return said

    def _alarm(self, number: int, frame: Any) -> None:
        self._late = True
        raise TimeoutError(f"the run took longer than {number}")
