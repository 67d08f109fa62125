"""`obsspec compare`: the same tasks through both pipelines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from obsspec.cli.console import check_json, progress_bar, wide_console, write_json
from obsspec.compare.judgement import judge
from obsspec.compare.parts import open_parts
from obsspec.compare.picture import draw
from obsspec.compare.run import Arm, arms_of, finished_pairs, run_pairs
from obsspec.compare.settings import CompareSettings
from obsspec.compare.summary import Pair, observation_pairs, summarize
from obsspec.compare.table import tables
from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.store import RunFolder


def compare(
    *,
    settings: CompareSettings | None = None,
    out: Annotated[Path, Parameter(help="Run folder; a folder of the same options is resumed.")] = Path("runs/compare"),
    json: Annotated[Path | None, Parameter(help="Also write summary.json to this file.")] = None,
) -> int:
    """Run the same terminal tasks through the sequential and the speculative pipeline and compare them.

    Paired (same tasks, same seeds, arms interleaved), and beside them observation speculation alone, without calls
    sent ahead. Writes every rollout to the run folder as it finishes, then
    summary.json and compare.png. Exit status 1 when any pair of rollouts differs (on an engine
    that is not bit-exact: when the arms do not sample from the same distribution), 2 for a wrong configuration.
    """
    settings = settings or CompareSettings()
    check_json(json)
    console = wide_console()
    folder = RunFolder(out, settings.as_config())
    try:
        pairs = anyio.run(partial(_run, settings, folder, console))
    except KeyboardInterrupt:
        _report(finished_pairs(folder), folder, console)
        console.print(f"[bold]interrupted[/]: finished rollouts are in {escape(str(out))}; the same command resumes")
        return 130
    return _report(pairs, folder, console, json)


async def _run(settings: CompareSettings, folder: RunFolder, console: Console) -> list[Pair]:
    async with open_parts(settings, console, folder.path) as opened:
        folder.claim("identity.json", opened.identity)
        folder.write_json("environment.json", opened.description)
        with progress_bar(console) as progress:
            total = len(arms_of(opened.parts)) * settings.tasks * settings.group
            bar = progress.add_task("rollouts", total=total)
            progress.update(bar, completed=min(total, sum(1 for _ in folder.results())))

            def finished(arm: Arm, result: RolloutResult) -> None:
                progress.advance(bar)
                trajectory = result.trajectory
                progress.console.print(
                    f"{arm:<11} {result.task_id:<24} reward {result.verdict.reward:.0f}  "
                    f"{len(trajectory.turns):>2} turns  {trajectory.agent_s:6.2f} s  {trajectory.stop}",
                    highlight=False,
                )

            return await run_pairs(settings, opened.parts, folder, finished)


def _report(pairs: list[Pair], folder: RunFolder, console: Console, json: Path | None = None) -> int:
    """Writes and prints the figures; the exit status of the command."""
    if not pairs:
        console.print("no pair is complete yet")
        return 1
    exact = bool(folder.read_json("identity.json")["exact"])
    judgement = judge(pairs, exact=exact)
    alone = observation_pairs(pairs)
    judged = [("", judgement), *([("observation only: ", judge(alone, exact=exact))] if alone else [])]
    summary = {**summarize(pairs), "exact": exact, **judgement.figures}
    written = folder.write_json("summary.json", summary)
    console.print(tables(summary))
    for arm, each in judged:
        console.print(arm + each.line, style=f"bold {'green' if each.good else 'red'}", highlight=False, markup=False)
    console.print(f"run folder: {escape(str(folder.path))} (rollouts.jsonl, summary.json, compare.png)")
    write_json(json, written.read_text(encoding="utf-8"))
    draw(pairs, summary, folder.path / "compare.png")  # last: a picture that can not be drawn takes nothing along
    return 0 if all(each.good for _, each in judged) else 1
