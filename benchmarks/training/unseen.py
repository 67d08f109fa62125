# pyright: basic, reportMissingImports=false
"""Both world models on the turns of the run itself, before the updated one was trained on any turn of that step.

Teacher-forced: an observation is matched when every one of its tokens is the most likely one. A step has many rollouts
of few tasks, so its figures are kept by task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from obsspec.train.precision import Precision
from obsspec.train.transition_log import Follower
from obsspec.train.transitions import Transition, examples
from obsspec.train.world_settings import WorldSettings


def unseen(log: Path, world: Path, steps: Sequence[int], adapter_at: Callable[[int], Path]) -> list[dict[str, Any]]:
    """For each of the steps and each of its tasks: observations, and the shares that both match. Kept in `world`."""
    kept = world / "unseen.json"
    found: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    missing = [step for step in steps if step not in {row["step"] for row in found}]
    if missing:
        settings = _settings(world)
        tasks = by_task(log, missing)
        frozen, updated = (_Model(settings, adapter_at(0)) for _ in range(2))
        for step in missing:
            updated.load(adapter_at(step))
            rows = [_row(step, task, turns, updated, frozen) for task, turns in tasks[step].items()]
            found += [row for row in rows if row["observations"]]
            kept.write_text(json.dumps(found))
            print(f"step {step}: " + ", ".join(f"{n} {_share(rows, n):.1%}" for n in ("updated", "frozen")))  # noqa: T201
    return [row for row in found if row["step"] in set(steps)]


def by_task(log: Path, steps: Sequence[int]) -> dict[int, dict[str, list[Transition]]]:
    """The turns of these steps."""
    tasks: dict[int, dict[str, list[Transition]]] = {step: {} for step in steps}
    follower = Follower(log)
    while (news := follower.poll()).transitions or news.ended:
        for turn in news.transitions:
            if turn.step in tasks:
                tasks[turn.step].setdefault(turn.task_id, []).append(turn)
    return tasks


def _row(step: int, task: str, turns: list[Transition], updated: _Model, frozen: _Model) -> dict[str, Any]:
    ours, theirs = updated.score(turns), frozen.score(turns)
    return {
        "step": step,
        "task": task,
        "observations": ours.observations,
        "updated": ours.exact,
        "frozen": theirs.exact,
        "trivial": ours.trivial,
    }


def _share(rows: Sequence[dict[str, Any]], name: str) -> float:
    return sum(row[name] * row["observations"] for row in rows) / max(1, sum(row["observations"] for row in rows))


class _Model:
    def __init__(self, settings: WorldSettings, adapter: Path) -> None:
        import torch

        from obsspec.models.adapter import read_adapter
        from obsspec.train.adapter import model_of
        from obsspec.train.run import working_type

        torch.set_num_threads(settings.threads)
        self._rules = settings.rules
        first, dtype = read_adapter(adapter), working_type(settings.precision)
        self._llama = model_of(first, dtype, whole=first.whole)

    def load(self, adapter: Path) -> None:
        from obsspec.models.adapter import read_adapter
        from obsspec.train.adapter import apply_adapter

        apply_adapter(self._llama, read_adapter(adapter))

    def score(self, turns: list[Transition]) -> Any:
        from obsspec.train.evaluate import evaluate

        return evaluate(self._llama, examples(turns, self._rules)[0])


def _settings(world: Path) -> WorldSettings:
    """Those that the world model was trained with."""
    config = json.loads((world / "config.json").read_text())
    config = {name: value for name, value in config.items() if name != "start"}
    return WorldSettings(**{**config, "precision": Precision(config["precision"])})
