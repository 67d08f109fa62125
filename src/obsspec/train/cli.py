"""`obsspec train`: record sessions, train the adapter on them, measure it."""

from __future__ import annotations

import importlib
from json import dumps
from pathlib import Path
from typing import Any

import anyio
from cyclopts import App
from rich.console import Console

from obsspec.tasks.task import Split
from obsspec.train.precision import Precision
from obsspec.train.record import Progress, record_sessions
from obsspec.values import ConfigError

app = App(name="train", help="Train the shipped adapter: policy and world model in one.")
_console = Console(soft_wrap=True)


@app.command
def record(
    out: Path,
    *,
    sessions: int = 3500,
    split: Split = Split.TRAIN,
    seed: int = 0,
    parallel: int = 2,
) -> None:
    """Record sessions of scripted agents in real sandboxes. An interrupted recording is continued.

    Parameters
    ----------
    out
        JSONL file, one session per line.
    sessions
        How many sessions to plan; those that do not solve their task are left out.
    split
        Which tasks: train, validation or test.
    seed
        First task seed, in millions.
    parallel
        Sandboxes at a time.
    """

    def report(progress: Progress) -> None:
        if (progress.kept + progress.failed) % 100 == 0:
            _console.print(f"{progress.kept} kept, {progress.failed} unsolved, of {progress.wanted}")

    end = anyio.run(record_sessions, out, split, seed, sessions, parallel, report)
    _console.print(f"{out}: {end.kept} sessions, {end.failed} unsolved")


@app.command
def model(
    sessions: Path,
    out: Path,
    *,
    held_out: Path,
    minutes: float = 75.0,
    learning_rate: float = 1e-3,
    policy_weight: float = 1.0,
    world_weight: float = 1.0,
    rank: int = 32,
    alpha: float = 64.0,
    batch_tokens: int = 1024,
    seed: int = 0,
    threads: int = 1,
    precision: Precision = Precision.AUTO,
) -> None:
    """Train the adapter on recorded sessions. Stops cleanly on Ctrl-C; the same command goes on from there.

    Parameters
    ----------
    sessions
        Sessions to train on, as `record` writes them. The file may still be growing.
    out
        Folder for adapter.safetensors, checkpoint.pt and log.jsonl.
    held_out
        Sessions to measure on every ten minutes and at the end; the first 150 are used.
    minutes
        Training time; the learning rate falls to zero over it.
    learning_rate
        Peak learning rate.
    policy_weight
        Loss weight of the tokens of actions; 0 trains a world model only.
    world_weight
        Loss weight of the tokens of observations; 0 trains a policy only.
    rank
        Rank of the adapters.
    alpha
        Scale of the adapters: the merged weight is W + alpha/rank * B A.
    batch_tokens
        Tokens of a batch, about.
    seed
        Initial factors and order of the sessions.
    threads
        CPU threads.
    precision
        Type of the matrix products; auto is bfloat16 where the CPU multiplies it fast, else float32.
    """
    run = _import_run()
    options = run.Options(sessions, out, held_out, rank=rank, alpha=alpha, threads=threads, precision=precision)
    settings = run.Settings(
        minutes=minutes,
        learning_rate=learning_rate,
        policy_weight=policy_weight,
        world_weight=world_weight,
        batch_tokens=batch_tokens,
        seed=seed,
    )
    run.train(options, settings, _console.print)


@app.command(name="eval")
def evaluate(
    sessions: Path,
    adapter: Path,
    *,
    limit: int = 400,
    threads: int = 1,
    precision: Precision = Precision.AUTO,
    json: Path | None = None,
) -> None:
    """Measure an adapter on recorded sessions, teacher-forced: share of observations and actions it reproduces.

    Parameters
    ----------
    sessions
        Sessions that were not trained on.
    adapter
        The adapter file.
    limit
        Use at most so many sessions.
    threads
        CPU threads.
    precision
        As in training.
    json
        Also write the figures to this file.
    """
    score = _import_run().measure(sessions, adapter, limit, threads, precision)
    _console.print(str(score))
    if json is not None:
        json.write_text(dumps(score.to_json(), indent=2) + "\n")


def _import_run() -> Any:
    """Torch is an extra: everything that needs it is imported here, late."""
    try:
        return importlib.import_module("obsspec.train.run")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise ConfigError(f"{error.name} is not installed: pip install torch==2.13.0") from None


if __name__ == "__main__":
    app()
