"""The files of the sandbox: laid down before the first command, read for the verifier, and given logical times.

Background processes may change the tree while it is walked: what has gone meanwhile is left out.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH_NS = 1_735_689_600 * 10**9  # 2025-01-01 00:00 UTC
STEP_NS = 60 * 10**9
KINDS = {stat.S_IFREG: b"file", stat.S_IFDIR: b"directory", stat.S_IFLNK: b"link"}
GONE = (FileNotFoundError, NotADirectoryError)


class TreeTooLargeError(Exception):
    """The files hold more than may be read."""


def lay_down(home: str, directories: list[bytes], files: list[tuple[bytes, int, bytes]], user: int | None) -> None:
    """Create directories and (path, mode, content) files below `home`, parents included. Raises OSError, ValueError."""
    base = os.fsencode(home)
    for path in (*directories, *(path for path, _, _ in files)):
        if path.startswith(b"/") or b".." in path.split(b"/"):
            raise ValueError(f"the path {os.fsdecode(path)!r} leaves {home}")
    for path in directories:
        os.makedirs(base + b"/" + path, exist_ok=True)
    for path, mode, content in files:
        target = base + b"/" + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)
        os.chmod(target, mode)
    if user is not None:
        for path, _ in walk(base):
            os.chown(path, user, user, follow_symlinks=False)


def walk(root: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """`root` and every path below it with its status, sorted within each directory.

    Links are not followed, other file systems are not entered. Directories that their owner may not enter are made
    enterable until the walk is over.
    """
    pending = [root]
    opened: list[tuple[bytes, int]] = []
    try:
        top = os.lstat(root)
        yield root, top
        while pending:
            directory = pending.pop()
            for name in _names(directory, opened):
                path = directory + b"/" + name
                try:
                    status = os.lstat(path)
                except GONE:
                    continue
                if status.st_dev != top.st_dev:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                yield path, status
    finally:
        for path, mode in reversed(opened):
            os.chmod(path, mode)


def _names(directory: bytes, opened: list[tuple[bytes, int]]) -> list[bytes]:
    try:
        mode = stat.S_IMODE(os.lstat(directory).st_mode)
        if os.geteuid() != 0 and mode & 0o500 != 0o500:
            os.chmod(directory, mode | 0o500)
            opened.append((directory, mode))
        return sorted(os.listdir(directory))
    except GONE:
        return []


def read_tree(home: str, limit: int) -> list[bytes]:
    """Four fields for each path below `home`: path, kind, permission bits, content (target of a link)."""
    base = os.fsencode(home)
    fields: list[bytes] = []
    total = 0
    for path, status in walk(base):
        if path == base:
            continue
        kind = KINDS.get(stat.S_IFMT(status.st_mode), b"other")
        try:
            content = _content(path, kind, limit - total)
        except GONE:
            continue
        total += len(content)
        if total > limit:
            raise TreeTooLargeError(f"the files under {home} hold more than {limit} bytes")
        fields += [path[len(base) + 1 :], kind, b"%d" % stat.S_IMODE(status.st_mode), content]
    return fields


def _content(path: bytes, kind: bytes, limit: int) -> bytes:
    """One byte more than `limit` at most."""
    if kind == b"link":
        return os.readlink(path)
    if kind != b"file":
        return b""
    try:
        return _read(path, limit)
    except PermissionError:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        os.chmod(path, mode | 0o400)
        try:
            return _read(path, limit)
        finally:
            os.chmod(path, mode)


def _read(path: bytes, limit: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # it may have become a link or a fifo
    with open(fd, "rb") as file:
        return file.read(limit + 1)


def logical_ns(step: int) -> int:
    """The time at which command number `step` runs, by the logical clock."""
    return EPOCH_NS + step * STEP_NS


def settle_times(roots: list[str], since_ns: int, step: int) -> None:
    """Give everything that changed since `since_ns` (wall clock) the logical time of command number `step`.

    Two runs of the same commands then show the same times, in the order of the changes. Times that a command set by
    itself to something older stay.
    """
    logical = logical_ns(step)
    for root in map(os.fsencode, roots):
        for path, status in walk(root):
            if status.st_mtime_ns >= since_ns:
                try:
                    os.utime(path, ns=(logical, logical), follow_symlinks=False)
                except GONE:
                    continue
