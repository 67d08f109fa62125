"""Rollouts as a training run needs them: by step and seed, on weights that change between steps, each made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyio.to_thread import run_sync

from obsspec.rollout.accounting import Account
from obsspec.rollout.async_collector import AsyncCollector, Collection
from obsspec.rollout.attempts import Drop
from obsspec.rollout.collector import Job, RolloutResult
from obsspec.rollout.store import RunFolder
from obsspec.train.live import LivePolicy
from obsspec.train.weights import Serving

MakeJob = Callable[[str, str, int], Job]  # prompt, label of the rollout, step

ACCOUNT = "account.json"
_ARM = "step-"
_OUTDATED = (Drop.STALE, Drop.MIXED_VERSIONS)  # nothing failed in them, but they are not to be used


@dataclass(slots=True)
class Kept:
    """The rollouts of a run on disk: a resumed run makes none of them again, but those in which a part failed.

    `account`: is stored with each. `before`: is called before each that is kept, in a thread. `since`: the first step
    that rollouts may still be asked for of; of those before it none is remembered.
    """

    folder: RunFolder
    account: Account | None = None
    before: Callable[[], None] = lambda: None
    since: int = 0
    found: dict[str, RolloutResult] = field(init=False)

    def __post_init__(self) -> None:
        results = self.folder.results(lambda arm: int(arm.removeprefix(_ARM)) >= self.since)
        self.found = {r.seed: r for _, r in results if not r.trajectory.stop.is_error}

    async def keep(self, step: int, result: RolloutResult) -> None:
        await run_sync(self.before)
        await run_sync(self.folder.append, f"{_ARM}{step}", result)
        if self.account is not None:
            await run_sync(self.folder.write_json, ACCOUNT, self.account.to_json())


def read_account(folder: RunFolder) -> Account:
    """The books of the run so far."""
    return Account.from_json(folder.read_json(ACCOUNT)) if (folder.path / ACCOUNT).exists() else Account()


class Rollouts:
    """A collector on a live policy. Of all that it makes, `account` keeps the books."""

    def __init__(
        self,
        live: LivePolicy,
        serving: Serving,
        collector: AsyncCollector,
        make_job: MakeJob,
        *,
        kept: Kept | None = None,
        account: Account | None = None,
    ) -> None:
        """`collector` collects whole groups with `live`, directly or through something that wraps it."""
        self._live, self._serving, self._collector = live, serving, collector
        self._make_job, self._kept, self._account = make_job, kept, account or Account()
        self._collection: Collection | None = None  # that is open

    async def publish(self, adapter: Path, name: str) -> None:
        """From here on, rollouts are sampled with this adapter."""
        if name != self._live.weight_version:
            await self._live.publish(self._serving.open(adapter, name))
            if self._collection is not None:
                self._collection.look()  # two updates while one request is made again would count as one

    async def collect(
        self,
        prompts: Sequence[str],
        step: int,
        label: str,
        seen: Callable[[RolloutResult], None] | None = None,
    ) -> list[RolloutResult]:
        """One rollout for each prompt, in order; the same prompt several times is a group.

        The seed of a rollout is a function of (label, prompt, its number in the group) alone. Rollouts that were kept
        are not made again. `seen`: is told of each that is made, once its group is complete and it is kept.
        """
        labels = _labels(prompts, label)
        jobs = [self._make_job(prompt, each, step) for prompt, each in zip(prompts, labels, strict=True)]
        kept = self._kept.found if self._kept is not None else {}
        found = {job.rules.seed: kept[job.rules.seed] for job in jobs if job.rules.seed in kept}
        missing = _groups([job for job in jobs if job.rules.seed not in found])
        async with self._collector.collect(missing, self._account) as self._collection:
            async for attempts in self._collection:
                for attempt in attempts:
                    result = found[attempt.job.rules.seed] = attempt.result
                    if self._kept is not None and attempt.drop not in _OUTDATED:
                        await self._kept.keep(step, result)
                    if seen is not None:
                        seen(result)
        self._collection = None
        return [found[job.rules.seed] for job in jobs]


def _groups(jobs: Sequence[Job]) -> list[list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.group, []).append(job)
    return list(groups.values())


def _labels(prompts: Sequence[str], label: str) -> list[str]:
    members: dict[str, int] = {}
    out: list[str] = []
    for prompt in prompts:
        members[prompt] = members.get(prompt, -1) + 1
        out.append(f"{label}/{prompt}/{members[prompt]}")
    return out
