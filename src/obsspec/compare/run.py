"""Runs the pairs: blocks of tasks through one arm and then the other, the order alternating, results kept at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import anyio
import anyio.to_thread

from obsspec.compare.remembered import teach
from obsspec.compare.settings import CompareSettings
from obsspec.compare.summary import Pair
from obsspec.compare.world import World
from obsspec.protocols import Policy, Renderer, WorldModel
from obsspec.rollout.collector import Collector, Job, RolloutResult
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.tasks.environment import TaskEnvironment, TerminalSandboxes
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split, Task


class Arm(StrEnum):
    SEQUENTIAL = "sequential"
    SPECULATIVE = "speculative"


@dataclass(frozen=True, slots=True)
class Parts:
    """The real parts that both arms share. `start_cold` empties the engines' prefix caches."""

    policy: Policy
    language: WorldModel  # alone, for measuring it
    world: World
    renderer: Renderer
    sandboxes: TerminalSandboxes
    start_cold: Callable[[], Awaitable[None]]


Progress = Callable[[Arm, RolloutResult], None]


async def run_pairs(settings: CompareSettings, parts: Parts, folder: RunFolder, progress: Progress) -> list[Pair]:
    """Every pair of the comparison; rollouts already in `folder` are not made again, unless a part failed in them.

    Each arm of a block starts with empty prefix caches, so that neither profits from the other's prompts.
    Cancelled: finished rollouts are in the folder.
    """
    jobs = _jobs(settings, parts)
    done = {(arm, r.seed): r for arm, r in folder.results() if not r.trajectory.stop.is_error}
    teach(parts.world.store, (result for (arm, _), result in done.items() if arm == Arm.SPECULATIVE))
    writing = anyio.Lock()
    collectors = {arm: _collector(arm, settings, parts) for arm in Arm}
    for block, order in _blocks(jobs, settings.concurrency):
        for arm in order:
            missing = [job for job in block if (arm, job.rules.seed) not in done]
            if not missing:
                continue

            async def keep(result: RolloutResult, arm: Arm = arm) -> None:
                async with writing:
                    await anyio.to_thread.run_sync(folder.append, arm, result)
                done[arm, result.seed] = result
                progress(arm, result)

            await parts.start_cold()
            await collectors[arm].run(missing, keep)
    return [Pair(done[Arm.SEQUENTIAL, job.rules.seed], done[Arm.SPECULATIVE, job.rules.seed]) for job in jobs]


async def sequential_results(settings: CompareSettings, parts: Parts, progress: Progress) -> list[RolloutResult]:
    """The sequential arm alone."""
    collector = _collector(Arm.SEQUENTIAL, settings, parts)

    async def tell(result: RolloutResult) -> None:
        progress(Arm.SEQUENTIAL, result)

    return await collector.run(_jobs(settings, parts), tell)


def finished_pairs(folder: RunFolder) -> list[Pair]:
    """The pairs of a folder of which both arms are there."""
    arms: dict[str, dict[str, RolloutResult]] = {arm: {} for arm in Arm}
    for arm, result in folder.results():
        arms[arm][result.seed] = result
    both = arms[Arm.SEQUENTIAL].keys() & arms[Arm.SPECULATIVE].keys()
    order = [seed for seed in arms[Arm.SEQUENTIAL] if seed in both]
    return [Pair(arms[Arm.SEQUENTIAL][seed], arms[Arm.SPECULATIVE][seed]) for seed in order]


def _jobs(settings: CompareSettings, parts: Parts) -> list[Job]:
    """`group` rollouts of each task of the test split: nothing was ever trained on them."""
    tasks = suite(Split.TEST, settings.tasks, settings.family_names, settings.difficulty, settings.task_seed)
    return [_job(task, member, settings, parts) for task in tasks for member in range(settings.group)]


def _collector(arm: Arm, settings: CompareSettings, parts: Parts) -> Collector:
    if arm is Arm.SEQUENTIAL:
        return Collector(parts.policy, settings.concurrency)
    return Collector(parts.policy, settings.concurrency, parts.world.speculation)


def _job(task: Task, member: int, settings: CompareSettings, parts: Parts) -> Job:
    limits = Limits(
        max_turns=min(settings.max_turns, task.max_turns),
        max_turn_tokens=settings.max_turn_tokens,
        max_context=settings.max_context,
    )
    rules = RolloutRules(
        parts.renderer,
        limits,
        seed=f"{settings.seed}/{task.id}/{member}",
        temperature=settings.temperature,
    )
    return Job(TaskEnvironment(task, parts.sandboxes), rules, group=task.id)


def _blocks(jobs: Sequence[Job], concurrency: int) -> Iterator[tuple[Sequence[Job], tuple[Arm, Arm]]]:
    """Blocks of rollouts with the order of the arms, which alternates: a drift of the machine falls on both arms."""
    size = 2 * concurrency if concurrency > 1 else 1  # two waves keep the slots of a block busy
    first, second = Arm.SEQUENTIAL, Arm.SPECULATIVE
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size], (first, second)
        first, second = second, first
