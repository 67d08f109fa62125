"""The commands that the training benchmarks run, each skipped when its result is there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from random import Random
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


def obsspec_within(minutes: float, spent: Path, *words: object) -> None:
    """`obsspec WORDS` for what is left of the minutes; `spent` holds the seconds of all calls before."""
    before = json.loads(spent.read_text()) if spent.exists() else 0.0
    if before >= minutes * 60:
        return
    began = time.monotonic()
    try:
        obsspec(*words, limit_s=minutes * 60 - before)
    finally:
        spent.parent.mkdir(parents=True, exist_ok=True)
        spent.write_text(json.dumps(before + time.monotonic() - began))


def start_adapter(out: Path, minutes: float = 12.0, careless: float = 0.0) -> Path:
    """A weak one: a few minutes of training on recorded sessions, of which this share is `cut_short`."""
    if not (done := out / "start.done").exists():
        sessions, held_out = _recorded(out)
        if careless:
            sessions = cut_short(sessions, careless)
        more = ("--minutes", minutes, "--threads", 2)
        obsspec("train", "model", sessions, out / "start", "--held-out", held_out, *more)
        done.touch()
    return out / "start" / "adapter.safetensors"


def start_world(out: Path, families: Collection[str]) -> Path:
    """A world model that knows sessions of these families only: eight minutes of training."""
    if not (done := out / "start-world.done").exists():
        parts = [only(sessions, families) for sessions in _recorded(out)]
        more = ("--minutes", 8, "--policy-weight", 0, "--threads", 2)
        obsspec("train", "model", parts[0], out / "start-world", "--held-out", parts[1], *more)
        done.touch()
    return out / "start-world" / "adapter.safetensors"


def _recorded(out: Path) -> tuple[Path, Path]:
    """Sessions to train on and to measure on; recording goes on where it was stopped."""
    sessions, held_out = out / "sessions.jsonl", out / "validation.jsonl"
    obsspec("train", "record", sessions, "--sessions", 3000)
    obsspec("train", "record", held_out, "--sessions", 150, "--split", "validation")
    return sessions, held_out


def cut_short(sessions: Path, share: float) -> Path:
    """A file beside it, in which this share of the agents stop after their first command, as if all were done."""
    part = sessions.with_stem(f"{sessions.stem}-careless")
    with sessions.open(encoding="utf-8") as lines, part.open("w", encoding="utf-8") as out:
        for line in lines:
            session = json.loads(line)
            if Random(f"{session['task_id']}/{session['agent']}").random() < share:
                session["exchanges"] = session["exchanges"][:1]
            out.write(json.dumps(session, ensure_ascii=False) + "\n")
    return part


def only(sessions: Path, families: Collection[str]) -> Path:
    """A file beside it, with the sessions of these families."""
    part = sessions.with_stem(f"{sessions.stem}-known")
    with sessions.open(encoding="utf-8") as lines:
        kept = [line for line in lines if family_of(json.loads(line)["task_id"]) in families]
    part.write_text("".join(kept), encoding="utf-8")
    return part


def family_of(task_id: str) -> str:
    return task_id.partition("-")[0]


def evaluated(
    policy: Path, world: Path | str, result: Path, rollouts: Path, tasks: int, families: str = "all"
) -> dict[str, Any]:
    """Reward and exact match on tasks of the test split, by `obsspec evaluate`; the rollouts are made once."""
    if not result.exists():
        result.parent.mkdir(parents=True, exist_ok=True)
        options = ["--tasks", tasks, "--families", families, "--task-seed", 1]
        options += ["--sandbox", "local", "--mode", "fast", "--concurrency", 4]
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
