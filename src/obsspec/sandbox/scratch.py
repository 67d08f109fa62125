"""A directory that lives as long as this process, and not for ever if this process is killed."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "obsspec-"
LOCK = ".lock"


def process_directory() -> Path:
    """A new directory for this process. Removes those that killed processes of the same user have left.

    A living owner holds a lock on the file beside its directory, so nothing is decided by process numbers, which mean
    little between containers.
    """
    _sweep(Path(tempfile.gettempdir()))
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = directory.with_name(directory.name + LOCK)
    unseen = lock.with_name(lock.name + ".new")  # until it is locked, so that nobody sweeps it in between
    fd = os.open(unseen, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)  # closed, and so unlocked, when the process ends
    fcntl.flock(fd, fcntl.LOCK_EX)
    unseen.rename(lock)
    atexit.register(_remove, directory, lock)
    return directory


def _sweep(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*{LOCK}"):
        try:
            if lock.stat().st_uid != os.geteuid():
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock.with_name(lock.name.removesuffix(LOCK)), lock)
        except OSError:  # its owner lives, or it has gone meanwhile
            continue


def _remove(directory: Path, lock: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    lock.unlink(missing_ok=True)
