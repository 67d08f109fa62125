"""`obsspec train collect`: every rollout once, whatever interrupts it, also on weights that change underneath."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from obsspec.policy.retry import Retrying
from obsspec.protocols import Policy
from obsspec.rollout.accounting import Account
from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.attempts import Drop
from obsspec.rollout.collector import Job, RolloutResult
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.tasks.task import Split
from obsspec.testing import ScriptedPolicy, seeded_answers, terminal_script
from obsspec.testing.delays import constant
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.policy import Request
from obsspec.testing.scripts import toy_renderer
from obsspec.train import collect
from obsspec.train.collect import Collecting, first_version
from obsspec.train.collect_settings import CollectSettings
from obsspec.train.live import open_live_policy
from obsspec.train.rollout_settings import Flow, RolloutSettings
from obsspec.train.rollouts import Rollouts
from obsspec.train.segments import Record
from obsspec.train.transition_log import Follower, TransitionWriter
from obsspec.train.versions import VersionFolder
from obsspec.values import ConfigError, EngineError
from tests.models.test_merge import write_adapter
from tests.train.power import Power

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Task(ScriptedEnvironment):
    split = Split.TRAIN


class Serving:
    """Scripted engines, slow enough to be interrupted."""

    @asynccontextmanager
    async def open(self, adapter: Path, version: str) -> AsyncGenerator[Policy, None]:
        yield ScriptedPolicy(terminal_script(final=0.2), first_s=constant(0.01), weight_version=version)


def job(prompt: str, label: str, step: int) -> Job:
    rules = RolloutRules(toy_renderer(), Limits(6, 16, 400), seed=label)
    return Job(Task(prompt, seeded_answers(prompt)), rules, group=f"{step}/{prompt}", step=step)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def open_rollouts(
        settings: RolloutSettings, adapter: Path, name: str, folder: Path, seed: int, *, flow: Flow, **more: Any
    ) -> AsyncGenerator[Rollouts, None]:
        async with open_live_policy(Serving().open(adapter, name)) as live:
            collector = AsyncCollector(
                live,
                settings.concurrency,
                flow.sandboxes,
                max_staleness=flow.max_staleness,
                retries=flow.retries,
                log=more.pop("log"),
            )
            yield Rollouts(live, Serving(), collector, job, **more)

    monkeypatch.setattr(collect, "open_rollouts", open_rollouts)


def adapter(path: Path, rows: int = 4) -> None:
    write_adapter(path, "model.layers.0.mlp.up_proj", rows, 8)


def collecting(folder: Path, **settings: Any) -> Collecting:
    policy = folder / "a.safetensors"
    if not policy.exists():
        adapter(policy)
    return Collecting(policy, folder / "run", CollectSettings(**settings), RolloutSettings(concurrency=3))


def nobody(result: RolloutResult) -> None:
    """Nobody looks on."""


def turns(folder: Path) -> Counter[tuple[str, int]]:
    return Counter((turn.rollout, turn.level) for turn in Follower(folder / "run" / "transitions").poll().transitions)


def kept(folder: Path) -> list[str]:
    return [json.loads(line)["seed"] for line in (folder / "run" / "rollouts.jsonl").read_text().splitlines()]


async def test_rollouts_their_turns_and_their_books_are_in_the_folder(tmp_path: Path) -> None:
    results = await collecting(tmp_path, tasks=3, group=2).run(nobody)
    assert sorted(kept(tmp_path)) == sorted(result.seed for result in results)
    assert len(results) == 6
    assert sum(turns(tmp_path).values()) == sum(len(result.trajectory.turns) for result in results)
    account = json.loads((tmp_path / "run" / "account.json").read_text())
    assert account["books"]["dispatched"] == 6
    assert account["books"]["used"] + account["books"]["lost"]["signal"] == 6


async def test_the_books_of_a_killed_collection_are_those_of_what_it_kept(tmp_path: Path) -> None:
    stored: list[tuple[int, Account]] = []

    def look(result: RolloutResult) -> None:
        """What a kill now would leave."""
        books = Account.from_json(json.loads((tmp_path / "run" / "account.json").read_text()))
        stored.append((len(kept(tmp_path)), books))

    await collecting(tmp_path, tasks=6).run(look)
    for rollouts, books in stored:
        assert books.used == rollouts, "groups of one"
        assert books.dispatched == books.used + sum(books.lost.values())
    assert stored[0][1].drops[Drop.CANCELLED] > 0


async def test_an_interrupted_collection_keeps_complete_groups_and_makes_the_others_once(tmp_path: Path) -> None:
    first = collecting(tmp_path, tasks=6, group=2)
    with anyio.CancelScope() as scope:

        def stop(result: RolloutResult) -> None:
            if len(kept(tmp_path)) >= 4:
                scope.cancel()

        await first.run(stop)
    assert scope.cancelled_caught
    before = kept(tmp_path)
    assert 4 <= len(before) < 12
    books = json.loads((tmp_path / "run" / "account.json").read_text())["books"]
    assert books["dispatched"] == books["used"] + sum(books["lost"].values())
    assert books["drops"][Drop.CANCELLED] > 0
    del first
    results = await collecting(tmp_path, tasks=6, group=2).run(nobody)
    assert kept(tmp_path)[: len(before)] == before
    assert len(set(kept(tmp_path))) == len(kept(tmp_path)) == len(results) == 12
    assert set(turns(tmp_path).values()) == {1}


async def test_after_a_power_failure_what_is_kept_has_all_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power, append, lost = Power(monkeypatch), TransitionWriter.append, list[int]()

    def append_and_fail(self: TransitionWriter, record: Record) -> int:
        place = append(self, record)
        if (tmp_path / "run" / "rollouts.jsonl").exists() and len(kept(tmp_path)) >= 2 and not lost:
            bytes_lost = power.fail(tmp_path / "run", tmp_path / "after" / "run")
            lost.extend([bytes_lost] if bytes_lost else [])  # none if a thread has just forced them to disk
        return place

    with monkeypatch.context() as patched:
        patched.setattr(TransitionWriter, "append", append_and_fail)
        await collecting(tmp_path, tasks=12).run(nobody)
    assert lost, "nobody forces turns to disk that may be made again"
    assert len(kept(tmp_path / "after")) >= 1
    again = Collecting(
        tmp_path / "a.safetensors",
        tmp_path / "after" / "run",
        CollectSettings(tasks=12),
        RolloutSettings(concurrency=3),
    )
    await again.run(nobody)
    made = [result for _, result in RunFolder(tmp_path / "after" / "run", again.config).results()]
    assert sorted(r.seed for r in made) == sorted(kept(tmp_path))
    assert set(turns(tmp_path / "after").values()) == {1}
    assert set(turns(tmp_path / "after")) == {(r.seed, level) for r in made for level in range(len(r.trajectory.turns))}


async def test_new_versions_are_followed_and_what_is_too_old_is_dropped_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "_POLL_S", 0.01)
    versions = VersionFolder(tmp_path / "versions", "policy")
    names = [versions.publish(0, adapter, {}).name]
    settings = CollectSettings(tasks=12, max_staleness=0, retries=9)
    run = Collecting(versions.path, tmp_path / "run", settings, RolloutSettings(concurrency=3))

    def publish(result: RolloutResult) -> None:
        if len(names) < 3:
            names.append(versions.publish(len(names), lambda path: adapter(path, 4 + len(names)), {}).name)

    results = await run.run(publish)
    assert len({result.seed for result in results}) == 12
    assert all(len(set(result.trajectory.versions)) == 1 for result in results)  # no updates old, so of one version
    assert {version for result in results for version in result.trajectory.versions} <= set(names)
    assert results[-1].trajectory.versions[-1] == names[-1]
    assert run.account.drops[Drop.STALE] > 0
    assert run.account.dispatched == 12 + run.account.drops[Drop.STALE]


async def test_what_is_dropped_as_too_old_is_not_kept(tmp_path: Path) -> None:
    async with open_live_policy(Serving().open(tmp_path, "v0")) as live:
        collector = AsyncCollector(live, 4, max_staleness=0)
        rollouts = Rollouts(live, Serving(), collector, job, kept=collect.Kept(RunFolder(tmp_path / "run", {})))
        async with anyio.create_task_group() as tasks:
            results = await rollouts.collect(
                [f"task-{i}" for i in range(8)],
                0,
                "label",
                lambda result: tasks.start_soon(rollouts.publish, tmp_path, "v1"),  # while others are in flight
            )
    stale = {result.seed for result in results if "stale" in (result.trajectory.error or "")}
    assert 0 < len(stale) < 8
    assert set(kept(tmp_path)) == {result.seed for result in results} - stale


async def test_versions_that_come_while_a_request_is_made_again_are_all_known(tmp_path: Path) -> None:
    """The only request fails on v0, is made again on v1, and v2 comes before it is answered."""

    class Once:
        @asynccontextmanager
        async def open(self, adapter: Path, version: str) -> AsyncGenerator[Policy, None]:
            def fault(request: Request) -> Exception | None:
                return EngineError("away") if version == "v0" else None

            script = terminal_script(final=0.2)
            yield ScriptedPolicy(script, first_s=constant(0.05), fault=fault, weight_version=version)

    async with open_live_policy(Once().open(tmp_path, "v0")) as live, anyio.create_task_group() as tasks:
        collector = AsyncCollector(Retrying(live, first_wait_s=0.2), 1, max_staleness=9)
        rollouts = Rollouts(live, Once(), collector, job)

        async def publish() -> None:
            await anyio.sleep(0.15)
            await rollouts.publish(tmp_path, "v1")
            await anyio.sleep(0.12)
            await rollouts.publish(tmp_path, "v2")

        tasks.start_soon(publish)
        (result,) = await rollouts.collect(["task"], 0, "label")
    assert result.trajectory.versions[0] == "v1"


def test_a_policy_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no adapter"):
        first_version(tmp_path / "nothing.safetensors")
    with pytest.raises(ConfigError, match="no version yet"):
        first_version(tmp_path)
    with pytest.raises(ConfigError, match="--sandboxes"):
        CollectSettings(sandboxes=-1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"policy": "nothing.safetensors"}, "no adapter"),
        ({"policy": "text"}, "not a readable adapter"),
        ({"families": "csvv"}, "--families: unknown csvv"),
        ({"world_model": "nowhere"}, "--world-model"),
        ({"world_model": "nothing.safetensors"}, "not a readable adapter"),
    ],
)
def test_what_is_wrong_is_said_before_the_folder_is_bound_to_it(
    wrong: dict[str, str], said: str, tmp_path: Path
) -> None:
    adapter(tmp_path / "a.safetensors")
    (tmp_path / "text").write_text("text")

    def collecting(policy: str = "a.safetensors", families: str = "all", world_model: str = "same") -> Collecting:
        rollouts = RolloutSettings(world_model=world_model)
        return Collecting(tmp_path / policy, tmp_path / "run", CollectSettings(families=families), rollouts)

    with pytest.raises(ConfigError, match=said):
        collecting(**wrong)
    collecting()
