"""Do both pipelines learn the same? The first steps of a sequential and of a speculative run, on the real engine.

    python -m benchmarks.training.same runs/same --start runs/learn/start/adapter.safetensors

Same seeds, exact mode, one thread of the update: rollouts (ids, masks, logprobs bit for bit, versions, observations,
rewards), losses, gradient norms and entropies of all steps are compared, and the weights after them byte for byte.
Exits with 1 if anything differs. Goes on where it was stopped; writes docs/training-same.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.training.commands import obsspec, start_adapter
from obsspec.models.adapter import read_adapter
from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.equality import differences
from obsspec.rollout.store import RunFolder

DOCS = Path(__file__).parent.parent.parent / "docs"
FIGURES = ("step", "loss", "grad_norm", "entropy", "reward")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=Path, help="the adapter both begin with; made when not given")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--options", default="--prompts 2 --group 4 --concurrency 4 --threads 2", help="of `obsspec train policy`"
    )
    options = parser.parse_args()
    start = options.start or start_adapter(options.out)
    runs = [options.out / arm for arm in ("sequential", "speculative")]
    for run, speculate in zip(runs, ("--no-speculate", "--speculate"), strict=True):
        more = ("--steps", options.steps, "--mode", "exact", "--train-threads", 1, speculate)
        obsspec("train", "policy", start, run, *more, *options.options.split())
    result = compared(*runs, options.steps)
    (DOCS / "training-same.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))  # noqa: T201
    if not result["same"]:
        raise SystemExit(1)


def compared(plain: Path, speculative: Path, steps: int) -> dict[str, Any]:
    """Of two run folders of `obsspec train policy`."""
    ours, theirs = (rollouts(run) for run in (speculative, plain))
    identical = sum(ours.keys() == theirs.keys() and not differences(ours[seed], theirs[seed]) for seed in theirs)
    figures = [learned(run) for run in (plain, speculative)]
    weights = [digest(run, steps) for run in (plain, speculative)]
    attempts = [attempt for result in ours.values() for attempt in result.speculation.attempts]
    return {
        "steps": steps,
        "rollouts": len(theirs),
        "identical": identical,
        "figures": figures[0],
        "figures_equal": figures[0] == figures[1],
        "weights_equal": weights[0] == weights[1],
        "predictions": len(attempts),
        "matched": sum(attempt.outcome == "match" for attempt in attempts),
        "same": identical == len(theirs) > 0
        and len(figures[0]) == steps
        and figures[0] == figures[1]
        and weights[0] == weights[1],
    }


def rollouts(run: Path) -> dict[str, RolloutResult]:
    config = json.loads((run / "config.json").read_text())
    return {result.seed: result for _, result in RunFolder(run, config).results()}


def learned(run: Path) -> list[dict[str, Any]]:
    """The figures of each step."""
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: entry[name] for name in FIGURES} for entry in entries if "reward" in entry]


def digest(run: Path, step: int) -> str:
    """Of the factors, byte for byte; the order of a file's metadata means nothing."""
    factors = read_adapter(run / "policy" / f"{step:06d}" / "adapter.safetensors").tensors
    digest = hashlib.sha256()
    for name in sorted(factors):
        digest.update(name.encode() + factors[name].tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
