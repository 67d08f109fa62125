"""Does it pay to train the world model with the policy? Match and latency of the updated and of the frozen one.

    python -m benchmarks.training.cotraining runs/co --minutes 240             # trains both at once
    python -m benchmarks.training.cotraining runs/co --policy runs/learn/policy   # goes through a run that is there
    ... --policy runs/learn/policy --known csv,files,logs,text   # with a world model that begins with less

Rollouts are lossless, so those of a policy do not depend on the world model: one that reads the transition log of a
finished run in the order of its steps is the one that would have been trained beside it.

With `--known`, the world model has seen sessions of these families only when it begins, and meets the other ones in the
run: to it, the policy has moved on to other tasks.

At the policy's versions: exact match of the world model that had seen every turn up to the making of that version,
and of the one of the start, on the same rollouts of held-out tasks; then agent latency with either, with the language
model alone and with the whole cascade. Goes on where it was stopped; other options want another folder. Writes
docs/training-co.json and docs/training-co.png after each part.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.training.commands import compared, evaluated, obsspec, obsspec_within, start_adapter, start_world
from benchmarks.training.cotraining_report import draw, match_line, show
from benchmarks.training.cotraining_rows import latency_row, match_row
from benchmarks.training.unseen import unseen
from obsspec.tasks.suite import ALL

DOCS = Path(__file__).parent.parent.parent / "docs"
ALONE = "lm alone"
SOURCES = {ALONE: "lm", "cascade": "rules,memory,replica,lm"}


@dataclass(frozen=True, slots=True)
class Models:
    """The run folders of `obsspec train policy` and `obsspec train world`."""

    policy: Path
    world: Path

    def policy_at(self, step: int) -> Path:
        return self.policy / "policy" / f"{step:06d}" / "adapter.safetensors"

    def world_at(self, step: int) -> int:
        """The newest version that had seen turns only of earlier steps.

        Policy version `step` samples the turns of that step. Version 0 has seen none.
        """
        manifests = (json.loads(p.read_text()) for p in (self.world / "versions").glob("[0-9]*/manifest.json"))
        return max(m["number"] for m in manifests if m["number"] == 0 or m["step"] < step)

    def world_version(self, number: int) -> Path:
        return self.world / "versions" / f"{number:06d}" / "adapter.safetensors"

    def newest_world(self) -> int:
        return max(int(path.parent.name) for path in (self.world / "versions").glob("[0-9]*/manifest.json"))

    def steps(self) -> list[int]:
        return sorted(int(path.parent.name) for path in (self.policy / "policy").glob("[0-9]*/manifest.json"))


def main() -> None:
    options = arguments().parse_args()
    known(options)  # wrong ones fail before anything is trained
    models = replayed(options) if options.policy else trained(options)
    steps = chosen(models, options.steps, options.every)
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.training.cotraining {shlex.join(sys.argv[1:])}",
        "tasks": options.tasks,
        "rows": [{"step": s} for s in steps],
    }

    def write() -> None:
        (DOCS / f"{options.name}.json").write_text(json.dumps(result, indent=2) + "\n")
        draw(result, DOCS / f"{options.name}.png")

    for row in result["rows"]:
        row.update(match_at(models, row["step"], options))
        print(f"step {row['step']}: " + match_line(row), flush=True)  # noqa: T201
        write()
    result["hindsight"] = hindsight(models, steps[0], options)
    write()
    if options.unseen_every:
        wanted = range(0, models.steps()[-1], options.unseen_every)
        log = models.policy / "transitions"
        result["unseen"] = unseen(log, models.world, wanted, lambda step: models.world_version(models.world_at(step)))
        write()
    for row in reversed(result["rows"]) if options.latency_tasks else []:  # the latest version says most
        row.update({label: latency_at(models, row["step"], label, options) for label in SOURCES})
        write()
    show(result)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--policy", type=Path, help="a finished run of `obsspec train policy` to go through")
    parser.add_argument("--world-options", default="", help="more options of `obsspec train world`, with --policy")
    parser.add_argument("--known", default="", help="families that the world model begins with, with --policy")
    parser.add_argument("--minutes", type=float, default=240.0, help="time for training both, without --policy")
    parser.add_argument("--start", type=Path, help="the adapter both begin with, without --policy; made when not given")
    parser.add_argument("--options", default="", help="more options of `obsspec train co`, without --policy")
    parser.add_argument("--every", type=int, default=20, help="policy steps between two measured versions")
    parser.add_argument("--steps", default="", help="measure these versions instead: 0,20,40")
    parser.add_argument("--tasks", type=int, default=60, help="held-out tasks for the match")
    parser.add_argument("--unseen-every", type=int, default=1, help="of the run's own steps, those measured; 0: none")
    parser.add_argument("--latency-tasks", type=int, default=20, help="held-out tasks for latency; 0: none")
    parser.add_argument("--name", default="training-co", help="of the files in docs/")
    parser.add_argument("--compare-options", default="", help="more options of `obsspec compare`")
    parser.add_argument("--alone-options", default="", help="more of them, where the language model predicts alone")
    return parser


def replayed(options: argparse.Namespace) -> Models:
    models = Models(options.policy, options.out / "world")
    log = models.policy / "transitions"
    more = ("--no-follow", "--order", "step", *options.world_options.split())
    start = start_world(options.out, known(options)) if options.known else models.policy_at(0)
    obsspec("train", "world", start, log, models.world, *more)
    return models


def known(options: argparse.Namespace) -> list[str]:
    families = options.known.split(",") if options.known else []
    if unknown := sorted(set(families) - set(ALL)):
        raise SystemExit(f"--known: no such families: {unknown}; there are {sorted(ALL)}")
    return families


def trained(options: argparse.Namespace) -> Models:
    start = options.start or start_adapter(options.out)
    run = options.out / "run"
    more = ("--steps", 10_000, "--keep-every", options.every, *options.options.split())
    obsspec_within(options.minutes, options.out / "spent.json", "train", "co", start, run, *more)
    return Models(run / "policy", run / "world")


def chosen(models: Models, steps: str, every: int) -> list[int]:
    there = models.steps()
    if not steps:
        return [step for step in there if step % every == 0 or step == there[-1]]
    wanted = [int(step) for step in steps.split(",")]
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise SystemExit(f"--steps: the run has not kept {missing}; it has {there}")
    return wanted


def evaluation(models: Models, step: int, world: int, options: argparse.Namespace) -> dict[str, Any]:
    """Of a policy version and a world version; all world versions are asked about the same rollouts."""
    place = options.out / "measured" / f"policy-{step}"
    result = place / f"world-{world}-of-{options.tasks}.json"
    return evaluated(models.policy_at(step), models.world_version(world), result, place / "rollouts", options.tasks)


def match_at(models: Models, step: int, options: argparse.Namespace) -> dict[str, Any]:
    updated, frozen = (evaluation(models, step, world, options) for world in (models.world_at(step), 0))
    return {"world_version": models.world_at(step), **match_row(updated, frozen, known(options))}


def hindsight(models: Models, step: int, options: argparse.Namespace) -> dict[str, Any]:
    """The newest world model on the rollouts of the first policy.

    What it gains there over the frozen one comes from more training, and not from having followed the policy.
    """
    newest = models.newest_world()
    newer, frozen = (evaluation(models, step, world, options) for world in (newest, 0))
    return {"step": step, "world_version": newest, **match_row(newer, frozen, known(options))}


def latency_at(models: Models, step: int, label: str, options: argparse.Namespace) -> dict[str, Any]:
    folders: list[Path] = []
    figures: list[dict[str, Any]] = []
    for world in (models.world_at(step), 0):
        folder = options.out / "measured" / f"policy-{step}" / f"{label.replace(' ', '-')}-{world}"
        result = folder.with_name(f"{folder.name}-of-{options.latency_tasks}.json")
        more = ["--tasks", options.latency_tasks, *options.compare_options.split()]
        more += options.alone_options.split() if label == ALONE else []
        figures.append(
            compared(models.policy_at(step), models.world_version(world), SOURCES[label], folder, result, more)
        )
        folders.append(folder)
    return latency_row(figures, folders)


if __name__ == "__main__":
    main()
