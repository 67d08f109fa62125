"""Files that survive a power failure, and files that are replaced whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from obsspec.values import ConfigError


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


def replace_text(path: Path, text: str) -> None:
    """The file holds the old text or the new one. Raises `ConfigError` where there is no room."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        to_disk(part)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigError(f"can not write {path} ({error.strerror}): free some space there") from None
