"""Both trainers together, real ones on the tiny Llama: each is killed once, and neither misses or repeats anything."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from obsspec.train.co import train_together
from obsspec.train.transitions import FilterRules, trainable
from tests.train.test_transitions import everything
from tests.train.tiny_policy import start_adapter, train
from tests.train.world_process import tiny_world

pytestmark = pytest.mark.timeout(600)
STEPS = 4


def policy(start: Path, out: Path) -> None:
    (out / "policy.pid").write_text(str(os.getpid()))
    train(start, out / "policy", STEPS, speculate=True, resumable=True)


def world(out: Path, follow: bool) -> None:
    (out / "world.pid").write_text(str(os.getpid()))
    trainer = tiny_world(out / "policy" / "transitions", out / "world", patience_s=0.2)
    trainer.run(lambda: False, follow=follow)


def kill_when(there: Path, pid: Path) -> None:
    """Kills the process once it has come so far."""
    while not there.exists():
        time.sleep(0.02)
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_both_are_killed_once_and_the_world_model_has_seen_every_turn_once(tmp_path: Path) -> None:
    said: list[str] = []
    start = start_adapter(tmp_path)
    kills = [
        (tmp_path / "policy" / "trainer" / "checkpoint-2", tmp_path / "policy.pid"),
        (tmp_path / "world" / "versions" / "000002", tmp_path / "world.pid"),
    ]
    threads = [threading.Thread(target=kill_when, args=kill) for kill in kills]
    for thread in threads:
        thread.start()
    train_together(
        partial(policy, start, tmp_path), partial(world, tmp_path, True), partial(world, tmp_path, False), said.append
    )
    for thread in threads:
        thread.join()
    assert sum("was killed (signal 9)" in line for line in said) == 2
    lines = (tmp_path / "policy" / "log.jsonl").read_text().splitlines()
    assert [e["step"] for e in map(json.loads, lines) if "reward" in e] == list(range(1, STEPS + 1))
    turns = everything(tmp_path / "policy" / "transitions").transitions
    wanted = sum(len(turn.targets) for turn in turns if trainable(turn, FilterRules()) is None)
    rounds = [json.loads(line) for line in (tmp_path / "world" / "log.jsonl").read_text().splitlines()]
    assert rounds[-1]["observations"] == wanted > 0
    assert [line["round"] for line in rounds] == list(range(1, len(rounds) + 1))
    versions = sorted(int(path.name) for path in (tmp_path / "world" / "versions").iterdir())
    assert versions == list(range(len(rounds) + 1))
