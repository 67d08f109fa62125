"""The room of one rollout: its own processes, its own empty writable directories, an ordinary user, no privileges.

Rooms of one sandbox see nothing of each other. The sandbox around them has no network and a read-only disk already.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x08000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 1, 2, 4, 1 << 14, 1 << 18
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 4, 38, 24, 47, 4
CAPABILITY_VERSION = 0x20080522
CAPABILITIES = 41

_libc = ctypes.CDLL(None, use_errno=True)


def forbid_user_namespaces() -> None:
    """In one of its own, code could mount file systems without a limit."""
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")


def start(limits: dict[str, Any], connection: int) -> int:
    """The process number (outside) of a new room. In the room, returns 0 as its process number 1, ready for code."""
    report, reply = os.pipe()
    helper = os.fork()
    if helper:
        os.close(reply)
        with os.fdopen(report) as file:
            said = file.read()
        os.waitpid(helper, 0)
        if not said.isdigit():
            raise OSError(f"cannot make a room for code: {said}")
        return int(said)
    try:
        _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID), "unshare")
        first = os.fork()
        if first == 0:
            _enter(limits, connection)
            return 0
        os.write(reply, str(first).encode())
    except OSError as error:
        os.write(reply, str(error).encode())
    os._exit(0)


def _enter(limits: dict[str, Any], connection: int) -> None:
    try:
        os.setsid()
        _keep_only(connection)
        _mount(limits)
        _limit(limits)
        _become(limits["user"])
        os.chdir("/home/user")
    except BaseException:  # noqa: BLE001 - a room that is not closed must not run anything
        os._exit(1)


def _keep_only(connection: int) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, connection)
    os.closerange(connection + 1, min(highest, 1 << 16))


def _mount(limits: dict[str, Any]) -> None:
    flags = MS_NOSUID | MS_NODEV
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    for path, mode in (("/home/user", "0755"), ("/tmp", "1777"), ("/dev/shm", "1777")):
        options = "size={},nr_inodes=4096,mode={}".format(limits["disk_bytes"], mode)
        _check(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options.encode()), f"mount {path}")
    if limits["user"] is not None:
        os.chown("/home/user", limits["user"], limits["user"])
    _check(_libc.mount(b"tmpfs", b"/proc", b"tmpfs", flags | MS_RDONLY, b"size=4096"), "mount /proc")


def _limit(limits: dict[str, Any]) -> None:
    for kind, name in (
        (resource.RLIMIT_AS, "memory_bytes"),
        (resource.RLIMIT_FSIZE, "file_bytes"),
        (resource.RLIMIT_NOFILE, "open_files"),
        (resource.RLIMIT_NPROC, "processes"),
    ):
        resource.setrlimit(kind, (limits[name], limits[name]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _become(user: Any) -> None:
    """No privilege is left, and none can be had again."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for number in range(CAPABILITIES):
        _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
