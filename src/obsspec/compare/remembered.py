"""The memory of a comparison: what the finished rollouts of its speculative arm have shown, and nothing else.

Its file is made anew from the run folder whenever a run is started or resumed. So a rollout that is made again, since
it was killed or a part failed in it, never meets what it has taught itself, and a damaged file harms nobody.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from obsspec.rollout.collector import RolloutResult
from obsspec.values import ConfigError, Context, Exchange
from obsspec.world.memory import Memory, Store

SPLIT = "test"  # the tasks of a comparison: nothing of them may come into training


@contextmanager
def open_memory(path: Path | None, console: Console) -> Generator[Store, None, None]:
    """An empty store in a new file; None: in no file. One that can not be written is said, and is no error.

    Raises `ConfigError` for a path that can not be a file.
    """
    if path is not None:
        _remove(path)
    store = Store(path)
    try:
        yield store
    finally:
        try:
            store.close()
        except (ConfigError, sqlite3.Error) as error:
            console.print(f"[bold yellow]the memory is incomplete[/]: {escape(str(error))}", highlight=False)


def teach(store: Store, results: Iterable[RolloutResult]) -> None:
    """What the rollouts taught when they were made."""
    memory = Memory(store, split=SPLIT)
    for result in results:
        history: list[Exchange] = []
        for turn in result.trajectory.turns:
            if turn.calls and len(turn.observations) == len(turn.calls):
                context = Context((), (), turn.calls, tuple(history), result.task_id, result.task_id, len(history))
                memory.learn(context, turn.observations)
                history.append(Exchange(turn.calls, turn.observations))


def _remove(path: Path) -> None:
    try:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"can not replace {path}: {error.strerror}; remove it") from error
