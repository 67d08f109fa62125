"""An exact copy of a file tree onto an empty file system.

Equal: content, holes, kinds, modes, owners, times, extended attributes, hard links, and the order in which tmpfs lists
a directory (newest first, so it is made in reverse). Different: inode numbers, change and birth times.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

WHOLE = 1 << 16  # files up to this size are read at once


class Copier:
    """Copies below one device.

    `skipped`: directories that are made, but not filled: places for mounts. `owner`: of everything, if it is to change.
    """

    def __init__(self, skipped: Collection[str] = (), owner: int | None = None) -> None:
        self._skipped = {os.fsencode(path) for path in skipped}
        self._owner = owner
        self._links: dict[int, bytes] = {}  # inode number -> where it was first copied to

    def copy(self, source: str, target: str) -> None:
        """The directory `source`, with its own attributes, onto the directory `target`. Raises OSError."""
        os.chdir(source)  # short paths: `source` may go through /proc
        status = os.stat(".")
        self._source, self._target, self._device = b".", os.fsencode(target), status.st_dev
        self._fill(b"")
        self._attributes(b".", self._target, status)
        os.chdir("/")

    def _fill(self, relative: bytes) -> None:
        for name in reversed(os.listdir(self._source + relative)):
            path = relative + b"/" + name
            status = os.lstat(self._source + path)
            self._one(path, status)

    def _one(self, path: bytes, status: os.stat_result) -> None:
        source, target = self._source + path, self._target + path
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(target)
            if status.st_dev != self._device or path in self._skipped:
                if self._owner is not None:
                    os.chown(target, self._owner, self._owner)
                return
            self._fill(path)
        elif status.st_nlink > 1 and (first := self._links.setdefault(status.st_ino, target)) != target:
            os.link(first, target, follow_symlinks=False)
            return
        elif stat.S_ISREG(status.st_mode):
            _copy_content(source, target, status.st_size)
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(source), target)
        else:
            os.mknod(target, status.st_mode, status.st_rdev)
        self._attributes(source, target, status)

    def _attributes(self, source: bytes, target: bytes, status: os.stat_result) -> None:
        owner, group = (status.st_uid, status.st_gid) if self._owner is None else (self._owner, self._owner)
        if (owner, group) != (os.geteuid(), os.getegid()):
            os.chown(target, owner, group, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(target, stat.S_IMODE(status.st_mode))
        for name in os.listxattr(source, follow_symlinks=False):
            os.setxattr(target, name, os.getxattr(source, name, follow_symlinks=False), follow_symlinks=False)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _copy_content(source: bytes, target: bytes, size: int) -> None:
    read = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if size <= WHOLE:
            os.write(write, os.read(read, WHOLE))
        else:
            os.ftruncate(write, size)
            _copy_data(read, write, size)
    finally:
        os.close(read)
        os.close(write)


def _copy_data(read: int, write: int, size: int) -> None:
    """Only what is not a hole."""
    at = 0
    while at < size:
        try:
            at = os.lseek(read, at, os.SEEK_DATA)
        except OSError:  # only a hole is left
            return
        end = os.lseek(read, at, os.SEEK_HOLE)
        os.lseek(write, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(write, read, at, end - at)
