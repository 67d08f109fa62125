"""Cancelled rollouts and real sandboxes behind a server: never more than the cap, and none left."""

from __future__ import annotations

import uuid

import anyio
import pytest

from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.attempts import Drop
from obsspec.rollout.collector import Job
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.tasks.environment import TaskEnvironment
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split
from obsspec.testing import ScriptedPolicy, terminal_script
from obsspec.testing.scripts import toy_renderer
from tests.sandbox.support import eventually, host_processes

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
CAP = 2


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_d11_a_cancelled_group_leaves_no_sandbox_and_no_process() -> None:
    """Six rollouts that sleep in their first command are given up while two of them have a sandbox."""
    marker = f"7{uuid.uuid4().int % 10**9}"
    policy = ScriptedPolicy(terminal_script([f"sleep {marker}"], final=0, malformed=0, cut=0, empty=0))
    most = 0
    async with serve_sandboxes() as sandboxes:

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, (await sandboxes.about())["sandboxes"])
                await anyio.sleep(0.01)

        def jobs(name: str) -> list[Job]:
            tasks = suite(Split.TRAIN, 6)
            rules = [RolloutRules(toy_renderer(), Limits(2, 60, 4000), f"{name}/{task.id}") for task in tasks]
            return [Job(TaskEnvironment(task, sandboxes), r, name) for task, r in zip(tasks, rules, strict=True)]

        collecting = AsyncCollector(policy, 4, CAP).collect([jobs("first"), jobs("second")])
        async with collecting as found, anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            assert await eventually(lambda: len(host_processes(f"sleep {marker}")) >= CAP, 20.0)
            found.cancel("first")
            cancelled = await anext(found)
            assert await eventually(lambda: len(host_processes(f"sleep {marker}")) >= CAP, 20.0), "the second group"
            tasks.cancel_scope.cancel()
        assert await eventually(lambda: not host_processes(marker))
        assert (await sandboxes.about())["sandboxes"] == 0
    assert [attempt.drop for attempt in cancelled] == [Drop.CANCELLED] * 6
    assert [attempt.number for attempt in cancelled] == [1, 1, 1, 1, 0, 0]
    assert most == CAP
    assert not policy.open
