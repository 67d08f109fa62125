"""Runs the pairs: blocks of tasks through one arm and then the other, the order alternating, results kept at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import anyio
import anyio.to_thread

from obsspec.compare.settings import CompareSettings
from obsspec.compare.summary import Pair
from obsspec.protocols import Policy, Renderer, WorldModel
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.speculation.gate import Breaker
from obsspec.speculation.session import SpeculationSettings
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
    world_model: WorldModel
    renderer: Renderer
    sandboxes: TerminalSandboxes
    start_cold: Callable[[], Awaitable[None]]


Progress = Callable[[Arm, RolloutResult], None]


async def run_pairs(settings: CompareSettings, parts: Parts, folder: RunFolder, progress: Progress) -> list[Pair]:
    """Every pair of the comparison; rollouts already in `folder` are not made again, unless a part failed in them.

    Each arm of a block starts with empty prefix caches, so that neither profits from the other's prompts.
    Cancelled: finished rollouts are in the folder.
    """
    tasks = _tasks(settings)
    done = {(arm, r.task_id): r for arm, r in folder.results() if not r.trajectory.stop.is_error}
    writing = anyio.Lock()
    collectors = {arm: _collector(arm, settings, parts) for arm in Arm}
    for block, order in _blocks(tasks, settings.concurrency):
        for arm in order:
            missing = [task for task in block if (arm, task.id) not in done]
            if not missing:
                continue

            async def keep(result: RolloutResult, arm: Arm = arm) -> None:
                async with writing:
                    await anyio.to_thread.run_sync(folder.append, arm, result)
                done[arm, result.task_id] = result
                progress(arm, result)

            await parts.start_cold()
            await collectors[arm].run([_job(task, settings, parts) for task in missing], keep)
    return [Pair(done[Arm.SEQUENTIAL, task.id], done[Arm.SPECULATIVE, task.id]) for task in tasks]


async def sequential_results(settings: CompareSettings, parts: Parts, progress: Progress) -> list[RolloutResult]:
    """The sequential arm alone."""
    collector = _collector(Arm.SEQUENTIAL, settings, parts)

    async def tell(result: RolloutResult) -> None:
        progress(Arm.SEQUENTIAL, result)

    return await collector.run([_job(task, settings, parts) for task in _tasks(settings)], tell)


def finished_pairs(folder: RunFolder) -> list[Pair]:
    """The pairs of a folder of which both arms are there."""
    arms: dict[str, dict[str, RolloutResult]] = {arm: {} for arm in Arm}
    for arm, result in folder.results():
        arms[arm][result.task_id] = result
    both = arms[Arm.SEQUENTIAL].keys() & arms[Arm.SPECULATIVE].keys()
    order = [task_id for task_id in arms[Arm.SEQUENTIAL] if task_id in both]
    return [Pair(arms[Arm.SEQUENTIAL][task_id], arms[Arm.SPECULATIVE][task_id]) for task_id in order]


def _tasks(settings: CompareSettings) -> list[Task]:
    """Tasks of the test split: nothing was ever trained on them."""
    return suite(Split.TEST, settings.tasks, settings.family_names, settings.difficulty, settings.task_seed)


def _collector(arm: Arm, settings: CompareSettings, parts: Parts) -> Collector:
    if arm is Arm.SEQUENTIAL:
        return Collector(parts.policy, settings.concurrency)
    speculation = Speculation(
        Shared(parts.world_model), SpeculationSettings(depth=settings.depth, breadth=settings.breadth), Breaker()
    )
    return Collector(parts.policy, settings.concurrency, speculation)


def _job(task: Task, settings: CompareSettings, parts: Parts) -> Job:
    limits = Limits(
        max_turns=min(settings.max_turns, task.max_turns),
        max_turn_tokens=settings.max_turn_tokens,
        max_context=settings.max_context,
    )
    rules = RolloutRules(
        parts.renderer,
        limits,
        seed=f"{settings.seed}/{task.id}",
        temperature=settings.temperature,
    )
    return Job(TaskEnvironment(task, parts.sandboxes), rules, group=task.id)


def _blocks(tasks: Sequence[Task], concurrency: int) -> Iterator[tuple[Sequence[Task], tuple[Arm, Arm]]]:
    """Blocks of tasks with the order of the arms, which alternates: a drift of the machine falls on both arms."""
    size = 2 * concurrency if concurrency > 1 else 1  # two waves keep the slots of a block busy
    first, second = Arm.SEQUENTIAL, Arm.SPECULATIVE
    for start in range(0, len(tasks), size):
        yield tasks[start : start + size], (first, second)
        first, second = second, first
