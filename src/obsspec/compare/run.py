"""Runs the pairs: blocks of tasks through one arm after the other, in changing order, results kept at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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
    OBSERVATION = "observation"  # the speculative one, but no call is sent ahead
    SPECULATIVE = "speculative"


@dataclass(frozen=True, slots=True)
class Parts:
    """The real parts that all arms share. `start_cold` empties the engines' prefix caches."""

    policy: Policy
    language: WorldModel  # alone, for measuring it
    world: World  # of the speculative arm
    observing: World | None  # of the arm without calls sent ahead: what it learns is its own
    renderer: Renderer
    sandboxes: TerminalSandboxes
    start_cold: Callable[[], Awaitable[None]]


Progress = Callable[[Arm, RolloutResult], None]


async def run_pairs(settings: CompareSettings, parts: Parts, folder: RunFolder, progress: Progress) -> list[Pair]:
    """Every pair of the comparison; rollouts already in `folder` are not made again, unless a part failed in them.

    Each arm of a block starts with empty prefix caches, so that none profits from another's prompts.
    Cancelled: finished rollouts are in the folder.
    """
    jobs = _jobs(settings, parts)
    done = {(arm, r.seed): r for arm, r in folder.results() if not r.trajectory.stop.is_error}
    for arm, world in _worlds(parts).items():
        teach(world.store, (result for (made_by, _), result in done.items() if made_by == arm))
    writing = anyio.Lock()
    collectors = {arm: _collector(arm, settings, parts) for arm in arms_of(parts)}
    for block, order in _blocks(jobs, settings.concurrency, list(collectors)):
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
    return [_pair(done, job.rules.seed) for job in jobs]


async def sequential_results(
    settings: CompareSettings, parts: Parts, folder: RunFolder, progress: Progress
) -> list[RolloutResult]:
    """The sequential arm alone, in the order of its jobs; rollouts in `folder` are kept as in `run_pairs`."""
    jobs = _jobs(settings, parts)
    done = {r.seed: r for _, r in folder.results() if not r.trajectory.stop.is_error}
    writing = anyio.Lock()

    async def keep(result: RolloutResult) -> None:
        async with writing:
            await anyio.to_thread.run_sync(folder.append, Arm.SEQUENTIAL, result)
        done[result.seed] = result
        progress(Arm.SEQUENTIAL, result)

    missing = [job for job in jobs if job.rules.seed not in done]
    await _collector(Arm.SEQUENTIAL, settings, parts).run(missing, keep)
    return [done[job.rules.seed] for job in jobs]


def finished_pairs(folder: RunFolder) -> list[Pair]:
    """The pairs of a folder of which both arms are there."""
    done = {(arm, result.seed): result for arm, result in folder.results()}
    both = [seed for arm, seed in done if arm == Arm.SEQUENTIAL and (Arm.SPECULATIVE, seed) in done]
    return [_pair(done, seed) for seed in both]


def _pair(done: Mapping[tuple[str, str], RolloutResult], seed: str) -> Pair:
    return Pair(done[Arm.SEQUENTIAL, seed], done[Arm.SPECULATIVE, seed], done.get((Arm.OBSERVATION, seed)))


def _jobs(settings: CompareSettings, parts: Parts) -> list[Job]:
    """`group` rollouts of each task of the test split: nothing was ever trained on them."""
    tasks = suite(Split.TEST, settings.tasks, settings.family_names, settings.difficulty, settings.task_seed)
    return [_job(task, member, settings, parts) for task in tasks for member in range(settings.group)]


def _collector(arm: Arm, settings: CompareSettings, parts: Parts) -> Collector:
    world = _worlds(parts).get(arm)
    return Collector(parts.policy, settings.concurrency, world.speculation if world is not None else None)


def arms_of(parts: Parts) -> list[Arm]:
    """The arms of a comparison with these parts."""
    return [Arm.SEQUENTIAL, *_worlds(parts)]


def _worlds(parts: Parts) -> dict[Arm, World]:
    """What each speculating arm has for itself, in the order of the arms."""
    observing = {Arm.OBSERVATION: parts.observing} if parts.observing is not None else {}
    return {**observing, Arm.SPECULATIVE: parts.world}


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


def _blocks(jobs: Sequence[Job], concurrency: int, arms: list[Arm]) -> Iterator[tuple[Sequence[Job], list[Arm]]]:
    """Blocks of rollouts with the order of the arms, which turns round: a drift of the machine falls on all of them."""
    size = 2 * concurrency if concurrency > 1 else 1  # two waves keep the slots of a block busy
    for number, start in enumerate(range(0, len(jobs), size)):
        turn = number % len(arms)
        yield jobs[start : start + size], arms[turn:] + arms[:turn]
