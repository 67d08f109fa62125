"""Segments: append-only files of records, one for each writer, whole to every reader wherever a writer was killed.

A record is one line: the CRC-32 of its JSON, a space, the JSON. What lies behind the last newline of a file is the
beginning of a record, which readers do not see and the next writer cuts off.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from obsspec.rollout.disk import cut_torn, to_disk
from obsspec.values import ConfigError

Record = dict[str, Any]
SUFFIX = ".jsonl"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LINE = re.compile(rb"[0-9a-f]{8} \{")  # how each begins


class TakenError(ConfigError):
    """Somebody else writes under that name."""


class Segment:
    """The file of one writer, open for appending, locked until it is closed or the process ends.

    Raises `ConfigError` for a name that is none and where there is no room, `TakenError` for a file that another
    process writes.
    """

    def __init__(self, log: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"a writer can not be called {name!r}: use letters, digits, '_', '-' and '.'")
        self.path = log / f"{name}{SUFFIX}"
        try:
            log.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            to_disk(log)
            self._lock()
            self._size = cut_torn(self._file)
        except OSError as error:
            raise ConfigError(f"can not write {self.path}: {error.strerror or error}") from error

    def append(self, record: Record) -> int:
        """Where the record begins. It outlives this process at once, and a power failure after `sync`.

        Raises `ConfigError` when it can not be written; the records before it are kept.
        """
        begin, line = self._size, packed(record)
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._file, line[written:], begin + written)
        except OSError as error:
            os.ftruncate(self._file, begin)
            raise ConfigError(f"can not write {self.path}: {error.strerror or error}; free some space") from error
        self._size += len(line)
        return begin

    def sync(self) -> None:
        """Raises `ConfigError` when the disk can not take what was appended."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise ConfigError(f"can not write {self.path}: {error.strerror or error}; free some space") from error

    def close(self) -> None:
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise TakenError(f"somebody writes to {self.path}: give each writer a name of its own") from None


def packed(record: Record) -> bytes:
    data = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32(data), data)


def records(path: Path, begin: int = 0) -> Iterator[tuple[int, int, Record]]:
    """(begin, end, record) of every whole record from `begin` on, as far as the file goes now.

    Raises `ConfigError` where the file is damaged or holds no record boundary at `begin`.
    """
    with path.open("rb") as file:
        if begin > file.seek(0, os.SEEK_END):
            raise ConfigError(f"{path} ends before byte {begin}: it is not the file that this position was taken in")
        file.seek(max(0, begin - 1))
        if begin and file.read(1) != b"\n":
            raise ConfigError(
                f"{path} has no record at byte {begin}: it is not the file that this position was taken in"
            )
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield begin, begin + len(line), _unpacked(path, begin, line)
            begin += len(line)


def record_at(path: Path, begin: int) -> Record:
    """The record that begins there."""
    return next(records(path, begin))[2]


def _unpacked(path: Path, begin: int, line: bytes) -> Record:
    if begin == 0 and not _LINE.match(line):
        raise ConfigError(f"{path} is no part of a transition log: give the folder of one, as RUN/transitions")
    data = line[9:-1]
    try:
        if int(line[:8], 16) == crc32(data):
            return json.loads(data)
    except ValueError:
        pass
    raise ConfigError(f"{path} is damaged at byte {begin}: restore it, or cut it off there with `truncate -s {begin}`")
