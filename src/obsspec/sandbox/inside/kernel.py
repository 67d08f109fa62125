"""What Python's `os` lacks: clone with namespaces, mounts, capabilities. Linux only; raises OSError."""

from __future__ import annotations

import ctypes
import os
import struct

NEW_MOUNTS, NEW_IPC, NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
BIND, RECURSIVE, NO_SUID, NO_DEV, NO_EXEC = 0x1000, 0x4000, 0x2, 0x4, 0x8
DETACH = 2
CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, SYS_RESOURCE = 0, 1, 3, 4, 5, 6, 7, 8, 24
_CLONE3, _SIGCHLD = 435, 17
_BOUNDING_DROP, _AMBIENT, _AMBIENT_CLEAR, _LAST_CAPABILITY = 24, 47, 4, 40
_CAPABILITIES_V3 = 0x20080522

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter lock: nothing may happen in between a clone
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.syscall.restype = ctypes.c_long


def clone(namespaces: int) -> int:
    """Fork into new namespaces: 0 in the child (number 1 of a new process namespace), its number in the caller."""
    arguments = ctypes.create_string_buffer(struct.pack("11Q", namespaces, 0, 0, 0, _SIGCHLD, 0, 0, 0, 0, 0, 0))
    return _check(_libc.syscall(ctypes.c_long(_CLONE3), arguments, ctypes.c_size_t(88)), "clone")


def unshare(namespaces: int) -> None:
    _check(_libc.unshare(ctypes.c_int(namespaces)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    parts = [os.fsencode(part) or None for part in (source, target, kind)]
    _check(_libc.mount(*parts, flags, data.encode() or None), f"mount {kind or source} at {target}")


def unmount(target: str) -> None:
    _check(_libc.umount2(os.fsencode(target), DETACH), f"unmount {target}")


def enter_root(path: str) -> None:
    """Make the mount at `path` the root directory; the old one is out of reach afterwards."""
    os.chdir(path)
    _check(_libc.pivot_root(b".", b"."), f"pivot_root {path}")
    unmount(".")
    os.chdir("/")


def keep_capabilities(own: set[int], commands: set[int]) -> None:
    """Give up every capability that is not in `own`; what this process executes gets at most `commands`.

    All below number 32. The inheritable set has no effect without file capabilities; it is that of other sandboxes.
    """
    _check(_libc.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0), "clear ambient capabilities")
    for number in range(_LAST_CAPABILITY + 1):
        if number not in commands:
            _check(_libc.prctl(_BOUNDING_DROP, number, 0, 0, 0), "drop a bounding capability")
    low = sum(1 << number for number in own)
    inherited = sum(1 << number for number in own & commands)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITIES_V3, 0))
    data = ctypes.create_string_buffer(struct.pack("6I", low, low, inherited, 0, 0, 0))
    _check(_libc.capset(header, data), "set capabilities")


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
