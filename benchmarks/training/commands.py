"""The commands that the training benchmarks run, each skipped when its result is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

STOP_S = 60.0


def obsspec(*words: object, limit_s: float | None = None, fine: tuple[int, ...] = (0,)) -> None:
    """Runs `obsspec WORDS`; after `limit_s` it is told to stop, and what it has done is kept.

    Ends the program with an exit status that is not `fine`.
    """
    command = [sys.executable, "-m", "obsspec.cli", *map(str, words)]
    print("$ obsspec", *words, flush=True)  # noqa: T201
    with subprocess.Popen(command) as process:
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return
    if status not in fine:
        raise SystemExit(status)


def start_adapter(out: Path) -> Path:
    """A weak one: a few minutes of training on recorded sessions."""
    sessions, held_out, model = out / "sessions.jsonl", out / "validation.jsonl", out / "start"
    adapter, done = model / "adapter.safetensors", out / "start.done"
    if not done.exists():
        obsspec("train", "record", sessions, "--sessions", 3000)
        obsspec("train", "record", held_out, "--sessions", 150, "--split", "validation")
        obsspec("train", "model", sessions, model, "--held-out", held_out, "--minutes", 12)
        done.touch()
    return adapter


def evaluated(policy: Path, world: Path | str, result: Path, rollouts: Path, tasks: int) -> dict[str, Any]:
    """Reward and exact match on tasks of the test split, by `obsspec evaluate`; the rollouts are made once."""
    if not result.exists():
        result.parent.mkdir(parents=True, exist_ok=True)
        options = ["--tasks", tasks, "--task-seed", 1, "--sandbox", "local", "--mode", "fast", "--concurrency", 4]
        if world != "same":
            options += ["--threads", 2]  # an engine for each
        models = ("--policy", policy, "--world-model", world)
        obsspec("evaluate", *models, *options, "--rollouts", rollouts, "--json", result)
    return json.loads(result.read_text())


def compared(policy: Path, world: Path, sources: str, out: Path, result: Path, options: list[Any]) -> dict[str, Any]:
    """Latency and outcomes of both pipelines on the same tasks, by `obsspec compare`; how many are identical, too."""
    if not result.exists():
        more = ("--sources", sources, "--task-seed", 1, "--threads", 2, "--no-observation-only", "--out", out)
        models = ("--policy", policy, "--world-model", world)
        obsspec("compare", *models, *more, *options, "--json", result, fine=(0, 1))
    return json.loads(result.read_text())
