"""Records sessions of scripted agents in real sandboxes: the training data, one JSON object per line.

Which sessions these are follows from the seed alone; a file that holds some of them is continued.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import SEEK_END, FileIO
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import anyio

from obsspec.sandbox.local import LocalSandboxes
from obsspec.tasks.scripted import Manner, scripted_agent
from obsspec.tasks.sessions import Session, load_sessions, record, to_json
from obsspec.tasks.suite import ALL, SEEDS_PER_SUITE, make_task
from obsspec.tasks.task import Difficulty, Split, Task, split_of
from obsspec.train.checks import at_least
from obsspec.values import ConfigError

_MANNERS = {Manner.EXPLORER: 65, Manner.ORACLE: 20, Manner.BLUNDERER: 15}
_DIFFICULTIES = {Difficulty.EASY: 85, Difficulty.MEDIUM: 15}
_BEGIN = b'{"task_id": '  # of a line


@dataclass(frozen=True, slots=True)
class Plan:
    """One session to record."""

    task: Task
    manner: Manner


@dataclass(frozen=True, slots=True)
class Progress:
    kept: int
    failed: int
    wanted: int


def plans(split: Split, seed: int) -> Iterator[Plan]:
    """Endless: families in turn, each task once, manner and difficulty drawn by weight."""
    for task_seed in count_from(seed * SEEDS_PER_SUITE):
        if split_of(task_seed) is not split:
            continue
        for family in ALL:
            rng = Random(f"{family}/{task_seed}")
            difficulty = rng.choices(list(_DIFFICULTIES), list(_DIFFICULTIES.values()))[0]
            manner = rng.choices(list(_MANNERS), list(_MANNERS.values()))[0]
            yield Plan(make_task(family, task_seed, difficulty), manner)


async def record_sessions(
    path: Path, split: Split, seed: int, wanted: int, parallel: int, report: Callable[[Progress], None]
) -> Progress:
    """Record until the file holds the first `wanted` sessions of the plan; only those with reward 1 are written.

    A session is written whole or, when this is cancelled or killed, not at all; the next call goes on from there.
    Raises `ConfigError`, also for a file that holds something else, which is left as it is.
    """
    at_least(SimpleNamespace(sessions=wanted, parallel=parallel, seed=seed), sessions=1, parallel=1, seed=0)
    done = _recorded(path)
    todo = (p for p in islice(plans(split, seed), wanted) if (p.task.id, p.manner) not in done)
    with path.open("ab", buffering=0) as file:
        recorder = _Recorder(file, Progress(len(done), 0, wanted), report)
        async with anyio.create_task_group() as group:
            for _ in range(parallel):
                group.start_soon(recorder.work, todo)
    return recorder.progress


class _Recorder:
    def __init__(self, file: FileIO, progress: Progress, report: Callable[[Progress], None]) -> None:
        self.progress = progress
        self._file, self._report = file, report
        self._sandboxes = LocalSandboxes()

    async def work(self, todo: Iterator[Plan]) -> None:
        for plan in todo:
            agent = scripted_agent(plan.task, plan.manner)
            async with self._sandboxes.open(plan.task.spec) as sandbox:
                self._keep(await record(plan.task, agent, sandbox))

    def _keep(self, session: Session) -> None:
        solved = session.reward == 1.0
        if solved:
            self._write((json.dumps(to_json(session), ensure_ascii=False) + "\n").encode())
        p = self.progress
        self.progress = Progress(p.kept + solved, p.failed + (not solved), p.wanted)
        self._report(self.progress)

    def _write(self, line: bytes) -> None:
        before = self._file.seek(0, SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            self._file.truncate(before)  # or the next line would be glued to half of this one
            raise ConfigError(
                f"can not write {self._file.name}: {error.strerror}; free some space, the same command goes on"
            ) from None


def _recorded(path: Path) -> set[tuple[str, str]]:
    """What the file holds already. A killed recorder may have left half a line at its end, which goes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch()
            return set()
        done = {(session.task_id, session.agent) for session in load_sessions(path)}
        with path.open("rb+") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if not _BEGIN.startswith(content[whole:][: len(_BEGIN)]):
                raise ConfigError(f"{path} holds something else than sessions: give another file")
            file.truncate(whole)
    except OSError as error:
        raise ConfigError(f"can not write {path}: {error.strerror or error}") from None
    return done
