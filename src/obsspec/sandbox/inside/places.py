"""The mounts of one fork, and how its files get there."""

from __future__ import annotations

import os

from . import kernel, state
from .copying import Copier

SHARED_MEMORY = "/dev/shm"
SMALL_BYTES = 8 << 20
STAGE = "/tmp"
FLAGS = kernel.NO_SUID | kernel.NO_DEV


class Places:
    """Either the writable directories of an ordinary sandbox, or (`whole`) a root directory of the fork's own.

    `source` is the root directory of the fork that is copied, as this process sees it; "" for the first fork, which
    starts from what the image has, all of it given to `owner`, if there is one.
    """

    def __init__(self, home: str, disk_bytes: int, owner: int | None, *, whole: bool) -> None:
        self._home = home
        self._disk_bytes = disk_bytes
        self._owner = owner
        self._whole = whole

    def clear(self) -> None:
        """Unmount what bubblewrap made for a single sandbox, once for all forks: it takes long."""
        for path in (SHARED_MEMORY, state.RUN, self._home, STAGE):
            kernel.unmount(path)

    def build(self, source: str) -> None:
        """Mount everything for this process, which has a mount namespace of its own. Raises OSError."""
        if self._whole:
            self._build_root(source)
            return
        for path, size, mode in self._directories():
            self._place(path, path, size, mode, source)
        self._mount_processes("")  # last: `source` is a path in the old one

    def roots(self) -> list[str]:
        """Where commands can write, apart from shared memory."""
        return ["/"] if self._whole else [self._home, STAGE]

    def _directories(self) -> list[tuple[str, int, int]]:
        small = [(SHARED_MEMORY, SMALL_BYTES, 0o1777), (state.RUN, SMALL_BYTES, 0o755)]
        if self._whole:
            return small
        return [*small, (self._home, self._disk_bytes, 0o755), (STAGE, self._disk_bytes, 0o1777)]

    def _place(self, path: str, target: str, size: int, mode: int, source: str) -> None:
        kernel.mount("tmpfs", target, "tmpfs", FLAGS, f"mode={mode:o},size={size}")
        if source:
            Copier().copy(source + path, target)
        elif self._owner is not None:
            os.chown(target, self._owner, self._owner)

    def _mount_processes(self, root: str) -> None:
        kernel.mount("proc", root + "/proc", "proc", FLAGS | kernel.NO_EXEC)

    def _build_root(self, source: str) -> None:
        shared = _mounted([self._home, STAGE, state.RUN, "/proc"])
        own = [path for path, _, _ in self._directories()]
        made = [path for path in (self._home, STAGE) if not source]  # empty where the image is copied
        kernel.mount("tmpfs", STAGE, "tmpfs", FLAGS, f"mode=755,size={2 * self._disk_bytes}")
        Copier([*shared, *own, "/proc", *made], None if source else self._owner or os.geteuid()).copy(
            source or "/", STAGE
        )
        if not source:
            os.chmod(STAGE + STAGE, 0o1777)
        for path in shared:
            kernel.mount(path, STAGE + path, flags=kernel.BIND | kernel.RECURSIVE)
        self._mount_processes(STAGE)
        for path, size, mode in self._directories():
            self._place(path, STAGE + path, size, mode, source)
        kernel.enter_root(STAGE)


def _mounted(without: list[str]) -> list[str]:
    """The outermost mounts of this process below the root directory, except those `without`."""
    found: list[str] = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            path = line.split()[4]
            if path != "/" and not any(path == top or path.startswith(top + "/") for top in (*found, *without)):
                found.append(path)
    return found
