"""A run folder: the configuration, and one line per finished rollout, on disk the moment it is finished."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.disk import cut_torn, to_disk
from obsspec.rollout.records import from_record, to_record
from obsspec.values import ConfigError

_ARM = re.compile(rb'\{"arm": ("(?:[^"\\]|\\.)*")')  # how a line begins


class RunFolder:
    """Append-only. A line counts once it is complete: a run killed while writing loses at most the line in hand.

    Opening a folder that another configuration made, or that another process has open, raises `ConfigError`; opening
    one's own resumes it. `free`: entries that need not be what they were, since they make no other rollouts.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], free: Collection[str] = ()) -> None:
        self.path = path
        self._rollouts = path / "rollouts.jsonl"
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock()
            self.claim("config.json", config, free)
            self._cut_torn_line()
        except OSError as error:
            raise ConfigError(f"can not use the run folder {path}: {error.strerror or error}") from error

    def results(self, wanted: Callable[[str], bool] = lambda arm: True) -> Iterator[tuple[str, RolloutResult]]:
        """(arm, result) of every finished rollout of the arms that are `wanted`, in the order in which they finished.

        Raises `ConfigError` for a line that is no rollout.
        """
        if not self._rollouts.exists():
            return
        with self._rollouts.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                arm = _ARM.match(line)  # most of the time is for the rest of the line
                if arm is None or wanted(json.loads(arm[1])):
                    yield self._read(number, line)

    def append(self, arm: str, result: RolloutResult) -> None:
        """Write one rollout and force it to disk. Raises `ConfigError` when there is no room; nothing else is lost."""
        line = json.dumps({"arm": arm, **to_record(result)}, ensure_ascii=True) + "\n"
        try:
            with self._rollouts.open("ab", buffering=0) as out:
                before = out.tell()
                try:
                    _write_all(out.fileno(), line.encode())
                    os.fsync(out.fileno())
                except OSError:
                    os.ftruncate(out.fileno(), before)  # or the next line would be glued to half of this one
                    raise
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"can not write to {self._rollouts}: {reason}; finished rollouts are kept, "
                "free some space and run the same command again"
            ) from error

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a whole file or none of it. Numbers that JSON lacks become null. Raises `ConfigError`."""
        target = self.path / name
        replace_text(target, json_text(content))
        return target

    def read_json(self, name: str) -> dict[str, Any]:
        """A file that `write_json` or `claim` has written. Raises `ConfigError`."""
        file = self.path / name
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise ConfigError(f"can not read {file}: {error.strerror or error}") from error
        except (ValueError, TypeError):
            raise ConfigError(f"{file} is damaged: choose another --out") from None

    def _lock(self) -> None:
        """Held until this object or the process ends. Where the file system has no locks, there is none."""
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ConfigError(
                f"another process is writing to {self.path}: wait for it, or choose another --out"
            ) from None
        except OSError:
            return

    def _read(self, number: int, line: bytes) -> tuple[str, RolloutResult]:
        try:
            record = json.loads(line)
            return record["arm"], from_record(record)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ConfigError(
                f"line {number} of {self._rollouts} is no rollout ({type(error).__name__}): "
                "delete that line to make the rollout again, or choose another --out"
            ) from error

    def claim(self, name: str, facts: Mapping[str, Any], free: Collection[str] = ()) -> None:
        """Write down what all rollouts of this folder have in common. Raises `ConfigError` if it was otherwise.

        `free`: is written down, and may be otherwise from then on.
        """
        config = json.loads(json.dumps(facts))
        file = self.path / name
        if not file.exists():
            if self._rollouts.exists():
                raise ConfigError(f"{self.path} holds rollouts but no {name}; choose another --out")
            self.write_json(name, config)
            return
        found = self.read_json(name)
        changed = [key for key in sorted({*found, *config} - set(free)) if found.get(key) != config.get(key)]
        if changed:
            key = changed[0]
            raise ConfigError(
                f"{self.path} was made with {key}={found.get(key)!r}, now {key}={config.get(key)!r}: "
                "use the same options to resume it, or another --out"
            )

    def _cut_torn_line(self) -> None:
        if not self._rollouts.exists():
            return
        with self._rollouts.open("rb+") as file:
            cut_torn(file.fileno())


def replace_text(path: Path, text: str) -> None:
    """On disk when this returns; the file holds the old text or the new one, whatever happens. Raises `ConfigError`."""
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        to_disk(path.parent)
    except OSError as error:
        raise ConfigError(f"can not write {path}: {error.strerror or error}; free some space there") from error


def json_text(content: Mapping[str, Any]) -> str:
    """JSON for people and programs: null for numbers that JSON can not hold."""
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _finite(value: Any) -> Any:
    """The same value with null for numbers that JSON can not hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in cast("list[Any]", value)]
    return value
