"""The fork server: imports what code is likely to import once, makes rooms, and passes requests to their states.

Requests and answers are frames; options and results are JSON.

    open, limits, modules                                ->  ready, facts
    run, run, room, parent, state, options, code         ->  done, run, result  |  lost, run, why
    cancel, run, room, state                             ->  lost, run, why  |  nothing, if it has ended
    drop, room, state; close, room                       ->  nothing

State 0 of a room is the empty one; a room is made when it is first used. The end of stdin ends everything.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import select
import socket
import sys
import time

from . import rooms
from .notebook import Notebook
from .plain import Plain
from .state import WALL, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from obsspec.sandbox.inside.frames import Decoder, encode
else:  # where it is in the sandbox
    from inside.frames import Decoder, encode

FIRST = b"0"
CHUNK = 1 << 16
GRACE_S = 1.0  # beyond the time limit of a run, for code that does not take the alarm
KILL_S = 0.3  # then its room ends
WARM_UP = """
from sympy import *
x, y = symbols("x y")
solve([x + y - 1, x - y], [x, y]), solve(x**2 - 2 * x - 3, x), solve(Eq(x**2, 2), x)
simplify(sin(x) ** 2 + cos(x) ** 2)
integrate(x * exp(x), (x, 0, 1)), diff(sin(x), x), limit(sin(x) / x, x, 0), factor(x**2 - 1), expand((x + 1) ** 3)
N(sqrt(2)), Matrix([[1, 2], [3, 4]]).det(), Sum(x, (x, 1, y)).doit(), str(pi / 3), divisors(12), sympify("x + 1")
"""  # imports and caches that the first use of sympy would need, at every first use


class Peer:
    """The server's end of the socket of one state."""

    def __init__(self, room: bytes, name: bytes, connection: socket.socket) -> None:
        self.room, self.name, self.connection = room, name, connection
        self.decoder = Decoder()
        self.run: Run | None = None


class Run:
    def __init__(self, name: bytes, parent: Peer, peer: Peer, deadline: float) -> None:
        self.name, self.parent, self.peer, self.deadline = name, parent, peer, deadline
        self.why = b"the state ended"
        self.killed = False


class Server:
    """Owns every room; runs no code of its users itself."""

    def __init__(self) -> None:
        self._answers = os.dup(1)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)  # imports may print
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._decoder = Decoder()
        self._rooms: dict[bytes, int] = {}
        self._states: dict[tuple[bytes, bytes], Peer] = {}
        self._peers: dict[int, Peer] = {}
        self._runs: dict[bytes, Run] = {}
        self._engines: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}

    def serve(self) -> None:
        while True:
            now = time.monotonic()
            waits = [run.deadline - now for run in self._runs.values()]
            for number, _ in self._poll.poll(max(0.0, min(waits)) * 1000 + 1 if waits else None):
                if number == 0:
                    data = os.read(0, CHUNK)
                    if not data:
                        return
                    for frame in self._decoder.feed(data):
                        self._handle(frame)
                elif number in self._peers:
                    self._hear(self._peers[number])
            self._reap()
            self._expire()

    def _handle(self, frame: list[bytes]) -> None:
        kind = frame[0]
        if kind == b"run":
            self._start(*frame[1:])
        elif kind == b"cancel" and frame[1] in self._runs:
            self._runs[frame[1]].why = b"cancelled"
            self._runs[frame[1]].deadline = 0.0
        elif kind == b"cancel" and (frame[2], frame[3]) in self._states:
            self._forget(self._states[frame[2], frame[3]])  # it ended meanwhile, and nobody knows of it
        elif kind == b"drop" and (frame[1], frame[2]) in self._states:
            self._forget(self._states[frame[1], frame[2]])
        elif kind == b"close":
            self._close(frame[1])
        elif kind == b"open":
            self._open(json.loads(frame[1]), json.loads(frame[2]))

    def _open(self, limits: dict[str, Any], modules: list[str]) -> None:
        self._limits = limits
        found = [name for name in modules if _importable(name)]
        if "sympy" in found:
            exec(WARM_UP, {})  # noqa: S102 - our own code
        self._engines["plain"] = Plain()
        facts: dict[str, Any] = {"python": platform.python_version(), "modules": found, "ipython": ""}
        try:
            self._engines["ipython"] = notebook = Notebook()
            facts["ipython"] = notebook.version
        except (ImportError, AttributeError):
            pass
        facts["paths"] = [path for path in sys.path if path]
        rooms.forbid_user_namespaces()
        gc.collect()
        gc.freeze()  # forks share what is never collected
        gc.enable()
        self._send([b"ready", json.dumps(facts).encode()])

    def _start(self, run: bytes, room: bytes, parent: bytes, state: bytes, options: bytes, code: bytes) -> None:
        try:
            source = self._source(room, parent)
            ours, theirs = socket.socketpair()
        except OSError as error:
            self._send([b"lost", run, str(error).encode()])
            return
        try:
            data = encode([b"run", state, options, code])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, theirs.fileno().to_bytes(4, sys.byteorder))]
            sent = source.connection.sendmsg([data], rights)
            source.connection.sendall(data[sent:])
        except OSError as error:
            ours.close()
            self._send([b"lost", run, str(error).encode()])
            return
        finally:
            theirs.close()
        peer = self._add(room, state, ours)
        limit = WALL * float(json.loads(options)["limit_s"]) + GRACE_S
        peer.run = self._runs[run] = Run(run, source, peer, time.monotonic() + limit)

    def _source(self, room: bytes, parent: bytes) -> Peer:
        if room not in self._rooms and parent == FIRST:
            ours, theirs = socket.socketpair()
            process = rooms.start(self._limits, theirs.fileno())
            if process == 0:
                try:
                    State(theirs, self._engines).serve()
                finally:  # whatever happens, nothing may return into the server's code
                    os._exit(1)
            theirs.close()
            self._rooms[room] = process
            self._add(room, FIRST, ours)
        if (room, parent) not in self._states:
            raise OSError("the state is not there any more")
        return self._states[room, parent]

    def _add(self, room: bytes, state: bytes, connection: socket.socket) -> Peer:
        peer = self._states[room, state] = Peer(room, state, connection)
        self._peers[connection.fileno()] = peer
        self._poll.register(connection.fileno(), select.POLLIN)
        return peer

    def _hear(self, peer: Peer) -> None:
        try:
            data = peer.connection.recv(CHUNK)
            frames = peer.decoder.feed(data)
        except (OSError, ValueError):
            data, frames = b"", []
        if frames and peer.run is not None:
            run, peer.run = peer.run, None
            del self._runs[run.name]
            self._send([b"done", run.name, frames[0][0]])
        if not data:
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        del self._states[peer.room, peer.name]
        del self._peers[peer.connection.fileno()]
        self._poll.unregister(peer.connection.fileno())
        peer.connection.close()
        if peer.run is not None:
            run, peer.run = peer.run, None
            del self._runs[run.name]
            self._send([b"lost", run.name, run.why])

    def _close(self, room: bytes) -> None:
        process = self._rooms.pop(room, None)
        if process is not None:
            os.kill(process, 9)
        for peer in [peer for peer in self._peers.values() if peer.room == room]:
            self._forget(peer)

    def _expire(self) -> None:
        """A run that is too late is killed by the state it came from; if that does not help, its room ends."""
        now = time.monotonic()
        for run in [run for run in self._runs.values() if run.deadline <= now]:
            if run.killed:
                self._close(run.peer.room)
                continue
            if run.deadline > 0:
                run.why = b"late"
            run.killed, run.deadline = True, now + KILL_S
            try:
                run.parent.connection.sendall(encode([b"kill", run.peer.name]))
            except OSError:
                self._close(run.peer.room)

    def _send(self, fields: list[bytes]) -> None:
        data = memoryview(encode(fields))
        while data:
            data = data[os.write(self._answers, data) :]

    def _reap(self) -> None:
        """Also of orphans. The number of a room that ended by itself is never used again."""
        while True:
            try:
                process, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            for room in [room for room, number in self._rooms.items() if number == process]:
                del self._rooms[room]


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except Exception:  # noqa: BLE001 - a package that cannot be imported here fails in the code that imports it
        return False
    return True
