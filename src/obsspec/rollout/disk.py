"""Files that survive a power failure, whoever wrote them, and what of a file of lines is whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_BLOCK = 65536


def to_disk(*paths: Path) -> None:
    """What this process can read of these files and folders survives a power failure.

    Nothing where the file system has no such thing. Raises `OSError`.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):
                raise
        finally:
            os.close(descriptor)


def cut_torn(descriptor: int) -> int:
    """Everything behind the last newline of a file goes; returns the size that is left, in bytes. Raises `OSError`."""
    end = at = os.fstat(descriptor).st_size
    while at > 0:
        begin = max(0, at - _BLOCK)
        newline = os.pread(descriptor, at - begin, begin).rfind(b"\n")
        if newline >= 0:
            at = begin + newline + 1
            break
        at = begin
    if at != end:
        os.ftruncate(descriptor, at)
    return at
