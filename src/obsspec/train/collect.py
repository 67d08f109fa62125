"""`obsspec train collect`: rollouts of training tasks without a trainer, into a run folder and a transition log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from obsspec.models.adapter import read_adapter
from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.store import RunFolder
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split
from obsspec.train import collect_settings, rollout_settings
from obsspec.train.collect_settings import CollectSettings
from obsspec.train.rollout_settings import RolloutSettings
from obsspec.train.rollouts import ACCOUNT, Kept, Rollouts, read_account
from obsspec.train.terminal import check_rollouts, known_families, open_rollouts
from obsspec.train.transition_log import TransitionWriter
from obsspec.train.versions import VersionFolder
from obsspec.values import ConfigError

TRANSITIONS, ENGINES = "transitions", "engines"
_LABEL, _POLL_S = "collect", 0.5

Seen = Callable[[RolloutResult], None]


class Collecting:
    """The collection of a run folder. Its account is stored with each rollout that is kept.

    `policy`: an adapter, or a folder of versions that somebody publishes, which is followed. Raises `ConfigError`.
    """

    def __init__(self, policy: Path, out: Path, settings: CollectSettings, rollouts: RolloutSettings) -> None:
        known_families(settings.families)  # what is wrong is said before the folder is bound to it
        first_version(policy)
        check_rollouts(rollouts)
        self._policy, self._settings, self._rollouts = policy, settings, rollouts
        self.config = {"policy": str(policy), **settings.as_config(), **rollouts.as_config()}
        self._folder = RunFolder(out, self.config, collect_settings.FREE | rollout_settings.FREE)
        self.account = read_account(self._folder)
        self.kept = Kept(self._folder, self.account)

    @property
    def prompts(self) -> list[str]:
        """The task of each rollout; the same one several times is a group."""
        settings = self._settings
        families = known_families(settings.families)
        tasks = suite(Split.TRAIN, settings.tasks, families, settings.difficulty, settings.task_seed)
        return [task.id for task in tasks for _ in range(settings.group)]

    async def run(self, seen: Seen) -> list[RolloutResult]:
        """The rollouts that are not in the folder yet; `seen` is told of each when its group is complete.

        Cancelled: complete groups are in the folder, and the next call makes the others.
        """
        adapter, name, versions = first_version(self._policy)
        out, settings = self._folder.path, self._settings
        with ExitStack() as stack:
            log = stack.enter_context(TransitionWriter(out / TRANSITIONS, _LABEL))
            self.kept.before = log.sync  # what is kept is not made again, and so not written down again
            stack.callback(self.store)
            async with open_rollouts(
                self._rollouts,
                adapter,
                name,
                out / ENGINES,
                settings.seed,
                kept=self.kept,
                log=log,
                account=self.account,
                flow=settings.flow,
            ) as rollouts:
                return await collect_from(rollouts, versions, self.prompts, seen)

    def store(self) -> None:
        self._folder.write_json(ACCOUNT, self.account.to_json())


async def collect_from(
    rollouts: Rollouts, versions: VersionFolder | None, prompts: list[str], seen: Seen
) -> list[RolloutResult]:
    """Collects while `versions` are followed, if there are any; an error of opening one ends the collection."""
    results: list[RolloutResult] = []
    async with anyio.create_task_group() as tasks:
        if versions is not None:
            tasks.start_soon(_follow, versions, rollouts)
        results += await rollouts.collect(prompts, 0, _LABEL, seen)
        tasks.cancel_scope.cancel()
    return results


async def _follow(versions: VersionFolder, rollouts: Rollouts) -> None:
    while True:
        newest = await run_sync(versions.latest)
        if newest is not None:
            await rollouts.publish(newest.adapter, newest.name)
        await anyio.sleep(_POLL_S)


def first_version(policy: Path) -> tuple[Path, str, VersionFolder | None]:
    """The adapter to begin with, what it is called, and the folder it is from, if it is. Raises `ConfigError`."""
    if policy.is_dir():
        versions = VersionFolder(policy, "policy")
        first = versions.latest()
        if first is None:
            raise ConfigError(f"{policy} holds no version yet: give RUN/policy of `train policy`, or an adapter")
        return first.adapter, first.name, versions
    if not policy.is_file():
        raise ConfigError(f"no adapter {policy}: give a file (.safetensors) or a folder of versions")
    read_adapter(policy)
    with policy.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return policy, f"policy-{digest[:8]}", None
