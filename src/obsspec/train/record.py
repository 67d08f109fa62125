"""Records sessions of scripted agents in real sandboxes: the training data, one JSON object per line.

Which sessions these are follows from the seed alone; a file that holds some of them is continued.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from random import Random
from typing import TextIO

import anyio

from obsspec.sandbox.local import LocalSandboxes
from obsspec.tasks.scripted import Manner, scripted_agent
from obsspec.tasks.sessions import Session, load_sessions, record, to_json
from obsspec.tasks.suite import ALL, SEEDS_PER_SUITE, make_task
from obsspec.tasks.task import Difficulty, Split, Task, split_of

_MANNERS = {Manner.EXPLORER: 65, Manner.ORACLE: 20, Manner.BLUNDERER: 15}
_DIFFICULTIES = {Difficulty.EASY: 85, Difficulty.MEDIUM: 15}


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
    """
    done = _recorded(path)
    todo = (p for p in islice(plans(split, seed), wanted) if (p.task.id, p.manner) not in done)
    with path.open("a", encoding="utf-8") as file:
        recorder = _Recorder(file, Progress(len(done), 0, wanted), report)
        async with anyio.create_task_group() as group:
            for _ in range(parallel):
                group.start_soon(recorder.work, todo)
    return recorder.progress


class _Recorder:
    def __init__(self, file: TextIO, progress: Progress, report: Callable[[Progress], None]) -> None:
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
            self._file.write(json.dumps(to_json(session), ensure_ascii=False) + "\n")
            self._file.flush()
        p = self.progress
        self.progress = Progress(p.kept + solved, p.failed + (not solved), p.wanted)
        self._report(self.progress)


def _recorded(path: Path) -> set[tuple[str, str]]:
    """What the file holds already. A killed recorder may have left half a line at its end, which goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return set()
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)
    return {(session.task_id, session.agent) for session in load_sessions(path)}
