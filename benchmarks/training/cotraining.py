"""Does it pay to train the world model with the policy? Match and latency of the updated and of the frozen one.

    python -m benchmarks.training.cotraining runs/co --minutes 240

At the policy's kept versions: exact match of the language world model as it was then and as it was at the start,
and agent latency with either, once with the language model alone and once with the whole cascade. Goes on where it was
stopped. Writes docs/training-co.json and docs/training-co.png.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.training.commands import compared, evaluated, obsspec, start_adapter

DOCS = Path(__file__).parent.parent.parent / "docs"
SOURCES = {"lm alone": "lm", "cascade": "rules,memory,replica,lm"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=240.0, help="time for training both")
    parser.add_argument("--every", type=int, default=20, help="policy steps between two measured versions")
    parser.add_argument(
        "--tasks", type=int, default=60, help="held-out tasks for the match, a third of them for latency"
    )
    parser.add_argument("--start", type=Path, help="the adapter both begin with; made when not given")
    parser.add_argument("--options", default="", help="more options of `obsspec train co`")
    options = parser.parse_args()
    start = options.start or start_adapter(options.out)
    spent = options.out / "spent.json"
    before = json.loads(spent.read_text()) if spent.exists() else 0.0
    began = time.monotonic()
    if before < options.minutes * 60:
        more = ("--steps", 10_000, "--keep-every", options.every, *options.options.split())
        obsspec("train", "co", start, options.out / "run", *more, limit_s=options.minutes * 60 - before)
        spent.write_text(json.dumps(before + time.monotonic() - began))
    rows = [row(step, options) for step in measured(options.out / "run", options.every)]
    (DOCS / "training-co.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    draw(rows, DOCS / "training-co.png")


def measured(run: Path, every: int) -> list[int]:
    steps = sorted(int(path.name) for path in (run / "policy" / "policy").glob("[0-9]" * 6))
    return [step for step in steps if step % every == 0]


def world_at(run: Path, step: int) -> Path:
    """The newest version that had seen no turn of a later policy step."""
    folders = sorted((run / "world" / "versions").glob("[0-9]" * 6))
    seen = [path for path in folders if json.loads((path / "manifest.json").read_text())["step"] <= step]
    return seen[-1] / "adapter.safetensors"


def row(step: int, options: argparse.Namespace) -> dict[str, Any]:
    run, out = options.out / "run", options.out / "measured"
    policy = run / "policy" / "policy" / f"{step:06d}" / "adapter.safetensors"
    worlds = {"updated": world_at(run, step), "frozen": run / "world" / "versions" / "000000" / "adapter.safetensors"}
    found: dict[str, Any] = {"step": step}
    for name, world in worlds.items():
        figures = evaluated(policy, world, out / f"{step}-{name}.json", options.tasks)
        found["reward"] = figures["reward"]
        found[f"{name} match"], found[f"{name} match nonempty"] = figures["match"], figures["match_nonempty"]
        for label, sources in SOURCES.items():
            place = out / f"{step}-{name}-{label.replace(' ', '-')}"
            found[f"{name} {label}"] = compared(policy, world, sources, place, max(1, options.tasks // 3))
    return found


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name in ("updated", "frozen"):
        axes.plot([r["step"] for r in rows], [r[f"{name} match"] for r in rows], "o-", label=f"{name} world model")
    axes.set(xlabel="policy step", ylabel="exact match", title="World model on the policy's own rollouts")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
