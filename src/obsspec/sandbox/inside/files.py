"""The files of the sandbox: laid down before the first command, read for the verifier, and given logical times."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import TypeVar

EPOCH_NS = 1_735_689_600 * 10**9  # 2025-01-01 00:00 UTC
STEP_NS = 60 * 10**9
KINDS = {stat.S_IFREG: b"file", stat.S_IFDIR: b"directory", stat.S_IFLNK: b"link"}

T = TypeVar("T")


class TreeTooLarge(Exception):
    """The files hold more than may be read."""


def lay_down(home: str, directories: list[bytes], files: list[tuple[bytes, int, bytes]], user: int | None) -> None:
    """Create directories and (path, mode, content) files below `home`, parents included."""
    base = os.fsencode(home)
    for path in directories:
        os.makedirs(base + b"/" + path, exist_ok=True)
    for path, mode, content in files:
        target = base + b"/" + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)
        os.chmod(target, mode)
    if user is not None:
        for path in (base, *walk(base)):
            os.chown(path, user, user, follow_symlinks=False)


def walk(root: bytes) -> Iterator[bytes]:
    """Every path below `root`, sorted within each directory; links are not followed."""
    pending = [root]
    while pending:
        directory = pending.pop()
        for name in sorted(_permitted(directory, os.listdir)):
            path = directory + b"/" + name
            yield path
            if stat.S_ISDIR(os.lstat(path).st_mode):
                pending.append(path)


def read_tree(home: str, limit: int) -> list[bytes]:
    """Four fields for each path below `home`: path, kind, permission bits, content (target of a link)."""
    base = os.fsencode(home)
    fields: list[bytes] = []
    total = 0
    for path in walk(base):
        info = os.lstat(path)
        kind = KINDS.get(stat.S_IFMT(info.st_mode), b"other")
        total += info.st_size if kind == b"file" else 0
        if total > limit:
            raise TreeTooLarge(f"the files under {home} hold more than {limit} bytes")
        fields += [path[len(base) + 1 :], kind, b"%d" % stat.S_IMODE(info.st_mode), _content(path, kind)]
    return fields


def _content(path: bytes, kind: bytes) -> bytes:
    if kind == b"link":
        return os.readlink(path)
    return _permitted(path, _read) if kind == b"file" else b""


def _read(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _permitted(path: bytes, read: Callable[[bytes], T]) -> T:
    """`read(path)`, with the owner's permissions switched on for the moment where they are missing."""
    try:
        return read(path)
    except PermissionError:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        os.chmod(path, mode | 0o700)
        try:
            return read(path)
        finally:
            os.chmod(path, mode)


def settle_times(roots: list[str], since_ns: int, step: int) -> None:
    """Give everything that changed since `since_ns` (wall clock) the logical time of command number `step`.

    Two runs of the same commands then show the same times, in the order of the changes. Times that a command set by
    itself to something older stay.
    """
    logical = EPOCH_NS + step * STEP_NS
    for root in map(os.fsencode, roots):
        for path in (root, *walk(root)):
            if os.lstat(path).st_mtime_ns >= since_ns:
                os.utime(path, ns=(logical, logical), follow_symlinks=False)
