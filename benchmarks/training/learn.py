"""Does the policy learn? GRPO from a weak adapter, and the reward of its versions on held-out tasks.

    python -m benchmarks.training.learn runs/learn --minutes 120

Goes on where it was stopped: recording, the weak start, the steps of the policy, each measurement. Writes
docs/training-policy.json and docs/training-policy.png.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.training.commands import evaluated, obsspec_within, start_adapter
from obsspec.compare.statistics import mean_estimate
from obsspec.rollout.store import RunFolder

DOCS = Path(__file__).parent.parent.parent / "docs"
OPTIONS = "--prompts 6 --group 8 --mode fast --threads 2 --train-threads 2 --concurrency 12 --max-turns 8"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=120.0, help="time for the policy's steps")
    parser.add_argument("--tasks", type=int, default=120, help="held-out tasks, of the test split")
    parser.add_argument("--steps", type=int, default=10_000, help="of the policy, unless time is over before")
    parser.add_argument("--families", default="all", help="of the tasks to train on and of the held-out ones")
    parser.add_argument("--every", type=int, default=10, help="steps between two measured versions")
    parser.add_argument("--start", type=Path, help="the adapter to begin with; made when not given")
    parser.add_argument("--start-minutes", type=float, default=12.0, help="how long the start is trained")
    help_ = "share of the start's demonstrations that stop after their first command"
    parser.add_argument("--careless", type=float, default=0.0, help=help_)
    parser.add_argument("--name", default="training-policy", help="of the files in docs/")
    parser.add_argument("--policy-options", default=OPTIONS, help="options of `obsspec train policy`")
    options = parser.parse_args()
    start = options.start or start_adapter(options.out, options.start_minutes, options.careless)
    run = options.out / "policy"
    train(start, run, options)
    rows = [measure(version, options) for version in kept(run, options.every)]
    for row in rows:
        row["gain"] = gain(rows[0], row)
    steps = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps = [step for step in steps if "reward" in step]
    result = {
        "commands": [f"python -m benchmarks.training.learn {shlex.join(sys.argv[1:])}"],
        "held_out": rows,
        "training": [{name: step.get(name) for name in NAMES} for step in steps],
    }
    (DOCS / f"{options.name}.json").write_text(json.dumps(result, indent=2) + "\n")
    draw(result, DOCS / f"{options.name}.png")
    for row in rows:
        gained = "{:+.1%} [{:+.1%}, {:+.1%}]".format(*row["gain"])
        print(f"step {row['step']:>3}  held-out reward {row['reward']:.1%} of {row['tasks']}  {gained}")  # noqa: T201


NAMES = (
    "step",
    "reward",
    "loss",
    "rollouts/match",
    "rollouts/collect_s",
    "step_time",
    "entropy",
    "clip_ratio/region_mean",
)


def train(start: Path, run: Path, options: argparse.Namespace) -> None:
    more = ["--steps", options.steps, "--keep-every", options.every, "--families", options.families]
    more += options.policy_options.split()
    obsspec_within(options.minutes, run.parent / "spent.json", "train", "policy", start, run, *more)


def kept(run: Path, every: int) -> list[Path]:
    """The versions that are measured: the start, every so many steps, and the last."""
    versions = sorted(path for path in (run / "policy").glob("[0-9]" * 6))
    return [path for path in versions if int(path.name) % every == 0 or path == versions[-1]]


def measure(version: Path, options: argparse.Namespace) -> dict[str, Any]:
    result = options.out / "held-out" / f"{version.name}.json"
    adapter, rollouts = version / "adapter.safetensors", result.with_suffix("")
    figures = evaluated(adapter, "same", result, rollouts, options.tasks, options.families)
    return {"step": int(version.name), **{name: figures[name] for name in MEASURED}, "rewards": rewards(rollouts)}


MEASURED = ("tasks", "reward", "reward_per_family", "match", "match_nonempty")


def rewards(rollouts: Path) -> dict[str, float]:
    """Of each task."""
    folder = RunFolder(rollouts, json.loads((rollouts / "config.json").read_text()))
    return {result.task_id: result.verdict.reward for _, result in folder.results()}


def gain(first: dict[str, Any], row: dict[str, Any]) -> list[float]:
    """In reward over the first version, with the ends of its 95 % interval; a task is a pair."""
    before, after = first["rewards"], row["rewards"]
    estimate = mean_estimate([after[task] - before[task] for task in sorted(before)])
    return [estimate.value, estimate.low, estimate.high]


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    training, held_out = result["training"], result["held_out"]
    axes.plot(
        [s["step"] for s in training], [s["reward"] for s in training], color="0.7", label="training tasks, each step"
    )
    axes.plot([r["step"] for r in held_out], [r["reward"] for r in held_out], "o-", label="held-out tasks")
    axes.set(xlabel="policy step", ylabel="reward", ylim=(0, 1), title="GRPO with observation speculation")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
