"""Files that survive a power failure, whoever wrote them."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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
