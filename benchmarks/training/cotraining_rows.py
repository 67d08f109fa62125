"""The figures of one policy version: both world models judged on the same calls, with paired intervals."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from benchmarks.training.commands import family_of
from obsspec.compare.run import finished_pairs
from obsspec.compare.statistics import Estimate, mean_estimate, share_estimate
from obsspec.compare.summary import task_latencies
from obsspec.rollout.store import RunFolder


def match_row(updated: dict[str, Any], frozen: dict[str, Any], known: Collection[str] = ()) -> dict[str, Any]:
    """From two results of `obsspec evaluate` on the same rollouts; intervals are over tasks.

    With `known` families, tasks of these and of the others are counted apart, too.
    """
    tasks = sorted(updated["match_per_task"])
    if tasks != sorted(frozen["match_per_task"]):
        raise SystemExit("the two world models were asked about different rollouts: remove the folder `measured`")
    row: dict[str, Any] = {
        "reward": updated["reward"],
        "tasks": updated["tasks"],
        **_match(updated, frozen, tasks),
        "match_nonempty": {"updated": updated["match_nonempty"], "frozen": frozen["match_nonempty"]},
        "match_trivial": updated["match_trivial"],
    }
    if known:
        parts = {
            "known": [t for t in tasks if family_of(t) in known],
            "new": [t for t in tasks if family_of(t) not in known],
        }
        row["families"] = {name: _match(updated, frozen, part) for name, part in parts.items() if part}
    return row


def _match(updated: dict[str, Any], frozen: dict[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    ours, theirs = (_matched(figures, tasks) for figures in (updated, frozen))
    calls = [updated["match_per_task"][task]["predictions"] for task in tasks]
    return {
        "calls": sum(calls),
        "match": {
            "updated": values(share_estimate(ours, calls)),
            "frozen": values(share_estimate(theirs, calls)),
            "difference": values(share_estimate([a - b for a, b in zip(ours, theirs, strict=True)], calls)),
        },
    }


def _matched(figures: dict[str, Any], tasks: Sequence[str]) -> list[float]:
    shares = (figures["match_per_task"][task] for task in tasks)
    return [share["match"] * share["predictions"] for share in shares]


def latency_row(figures: list[dict[str, Any]], folders: list[Path]) -> dict[str, Any]:
    """From two results of `obsspec compare` on the same tasks and their run folders: updated, frozen."""
    updated, frozen = figures
    ours, theirs = (ratios(folder) for folder in folders)
    return {
        "pairs": updated["pairs"],
        "identical": [updated["identical"], frozen["identical"]],
        "sequential_s": [f["agent_s_sequential"] for f in figures],
        "updated_s": updated["agent_s_speculative"],
        "frozen_s": frozen["agent_s_speculative"],
        "updated_reduction": [updated["reduction"], *updated["reduction_ci"]],
        "frozen_reduction": [frozen["reduction"], *frozen["reduction_ci"]],
        "reduction_difference": values(mean_estimate([theirs[task] - ours[task] for task in sorted(ours)])),
        "match": {"updated": updated["match"], "frozen": frozen["match"]},
    }


def ratios(folder: Path) -> dict[str, float]:
    """Agent latency of each task, speculative over sequential in the same run: another run had another machine."""
    pairs = finished_pairs(RunFolder(folder, json.loads((folder / "config.json").read_text())))
    tasks = list(dict.fromkeys(pair.sequential.task_id for pair in pairs))
    sequential, speculative = task_latencies(pairs)
    return {task: after / before for task, before, after in zip(tasks, sequential, speculative, strict=True)}


def values(estimate: Estimate) -> list[float]:
    """Value, and the ends of its 95 % interval."""
    return [estimate.value, estimate.low, estimate.high]
