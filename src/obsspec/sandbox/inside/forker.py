"""Process number 1 of a sandbox with forks: makes them, and holds them together.

A request is one message on the control socket with one end of a socket pair: `spawn, source, last process, whole, map,
commands, owner, home, disk bytes`. The answer comes over that pair, from the fork: `ok, number  |  error, message`.
`source` and `number` name a fork by its process number here. Then the fork serves requests as in `forked`. A fork ends
when the other end of its pair is closed; all end with this process, which ends with its stdin or its control socket.

`map`: lines of the map of users of a further user namespace, if the fork is to have one. `owner`: of the files of a
fork, if not this process. `commands`: who runs them, "user", or "one" where the sandbox has one user, or "root".
"""

from __future__ import annotations

import _socket
import fcntl
import os
import select
import signal
import struct

from . import forked, kernel
from .fields import Fields
from .frames import Decoder
from .init import forbid_user_namespaces, send
from .places import Places
from .state import CONTROL

NAMESPACES = kernel.NEW_MOUNTS | kernel.NEW_PROCESSES | kernel.NEW_IPC | kernel.NEW_NETWORK
MAX_MESSAGE = 1 << 16
_SET_FLAGS, _UP = 0x8914, 0x41

_INIT = {
    kernel.SETUID,
    kernel.SETGID,
    kernel.KILL,
    kernel.CHOWN,
    kernel.FOWNER,
    kernel.DAC_OVERRIDE,
    kernel.SYS_RESOURCE,
}
_ROOT = _INIT - {kernel.SYS_RESOURCE} | {kernel.FSETID}
# of the init of a fork and of its commands; the init has one more, so that no command may trace it
CAPABILITIES = {"user": (_INIT, _INIT), "one": ({kernel.KILL}, set[int]()), "root": (_INIT | _ROOT, _ROOT)}


class Request:
    """A fork to make."""

    def __init__(self, fields: Fields) -> None:
        fields.raw()
        self.source, self.last, whole = fields.text(), fields.raw(), bool(fields.number())
        self.users, self.commands, owner = fields.text(), fields.text(), fields.text()
        self.owner = int(owner) if owner else None
        self.places = Places(fields.text(), fields.number(), self.owner, whole=whole)


class Forker:
    def __init__(self) -> None:
        self._first = True
        self._control = _socket.socket(fileno=int(os.environ[CONTROL]))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks need no reaping
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> None:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._control.fileno(), select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if 0 in ready:
                return
            data, rights, _, _ = self._control.recvmsg(MAX_MESSAGE, _socket.CMSG_SPACE(4))
            if not data:
                return
            self._spawn(Request(Fields(Decoder().feed(data)[0])), struct.unpack("i", rights[0][2][:4])[0])

    def _spawn(self, request: Request, link: int) -> None:
        unshared, unshared_end = os.pipe()
        mapped_end, mapped = os.pipe()
        try:
            if self._first:
                request.places.clear()
            self._first = False
            child = kernel.clone(NAMESPACES)
        except OSError as error:
            child = -1
            os.dup2(link, 1)
            send([b"error", f"cannot fork: {error}".encode()])
        if child == 0:
            os.close(unshared)
            os.close(mapped)
            self._become_fork(request, link, unshared_end, mapped_end)
        for fd in (link, unshared_end, mapped_end):
            os.close(fd)
        if os.read(unshared, 1):
            _map_users(child, request.users)
            os.write(mapped, b"1")
        os.close(unshared)
        os.close(mapped)

    def _become_fork(self, request: Request, link: int, unshared: int, mapped: int) -> None:
        try:
            os.dup2(link, 0)
            os.dup2(link, 1)
            os.close(link)
            self._control.close()
            number = os.readlink(b"/proc/self")
            roots = _set_up(request, unshared, mapped)
            send([b"ok", number])
            init = forked.ForkedInit(roots)
            init.serve()
            init.end()
        except Exception as error:  # noqa: BLE001 - whatever it is, the owner learns it and the fork ends
            send([b"error", f"the fork failed: {error!r}".encode()])
        finally:
            os._exit(0)  # nothing may return into the forker's code


def _map_users(child: int, users: str) -> None:
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{name}", "w") as file:
            file.write(users)


def _set_up(request: Request, unshared: int, mapped: int) -> list[str]:
    places = request.places
    places.build(f"/proc/{request.source}/root" if request.source else "")
    _raise_loopback()
    if request.last:
        forked.count_from(request.last)
    if request.users:
        _enter_users(unshared, mapped)
    if request.owner is not None:
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    os.close(unshared)
    os.close(mapped)
    forbid_user_namespaces()
    kernel.keep_capabilities(*CAPABILITIES[request.commands])
    return places.roots()


def _enter_users(unshared: int, mapped: int) -> None:
    kernel.unshare(kernel.NEW_USERS)
    os.write(unshared, b"1")
    if not os.read(mapped, 1):
        os._exit(1)


def _raise_loopback() -> None:
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(probe.fileno(), _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    probe.close()
