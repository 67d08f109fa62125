"""Recorded data by path: files of rows, run folders, directories and patterns of them."""

from __future__ import annotations

import glob
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from obsspec.values import ConfigError
from obsspec.worldeval.recorded import Recorded
from obsspec.worldeval.rows import Entry, RowsFile
from obsspec.worldeval.runs import ROLLOUTS, RunRollouts

SUFFIXES = (".jsonl", ".jsonl.gz")


class Data(Protocol):
    """One data set: its rollouts in recorded order, read one at a time."""

    @property
    def name(self) -> str: ...

    @property
    def rollouts(self) -> tuple[Entry, ...]: ...

    @property
    def empty_texts(self) -> Mapping[str, str]:
        """By tool, the text by which it most often says that it printed nothing."""
        ...

    def read(self, entry: Entry) -> tuple[Recorded, ...]: ...

    def close(self) -> None: ...


@contextmanager
def open_data(patterns: Sequence[str], arm: str) -> Generator[list[Data], None, None]:
    """Each file and run folder is a data set of its own, checked before anything is measured. Raises `ConfigError`."""
    with ExitStack() as stack:
        found: list[Data] = []
        for path in [each for pattern in patterns for each in paths(pattern)]:
            data = RunRollouts(path, arm) if path.is_dir() else RowsFile(path)
            stack.callback(data.close)
            found.append(data)
        names = [data.name for data in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"two data sets are called {twice[0]}: rename one, or evaluate them one at a time")
        yield found


def paths(pattern: str) -> list[Path]:
    """The run folders and files of rows that a path, directory or glob pattern names. Raises `ConfigError`."""
    named = [Path(pattern)]
    if not named[0].exists():
        named = [Path(each) for each in sorted(glob.glob(pattern))]  # noqa: PTH207 - absolute patterns too
    found = [path for each in named for path in _inside(each)]
    if not found:
        what = "holds no .jsonl or .jsonl.gz file and is no run folder" if named else "is not there"
        raise ConfigError(f"{pattern} {what}: give files of recorded rows, or folders that `obsspec compare` made")
    return found


def _inside(path: Path) -> Iterator[Path]:
    if path.is_file() or (path / ROLLOUTS).is_file():
        yield path.parent if path.name == ROLLOUTS else path
        return
    for each in sorted(path.iterdir()):
        if (each.is_file() and each.name.endswith(SUFFIXES)) or (each / ROLLOUTS).is_file():
            yield each
