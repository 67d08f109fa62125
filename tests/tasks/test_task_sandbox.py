"""Tasks and scripted agents on real sandboxes: every agent solves every task, and every check can fail."""

from __future__ import annotations

import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.tasks.mutate import mutations
from obsspec.tasks.scripted import Manner, scripted_agent
from obsspec.tasks.sessions import Session, record
from obsspec.tasks.suite import ALL, make_task
from obsspec.tasks.task import Difficulty, Task, initial_tree, verify

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


async def solve(task: Task, manner: Manner, seed: int = 0) -> Session:
    async with LocalSandboxes().open(task.spec) as sandbox:
        return await record(task, scripted_agent(task, manner, seed), sandbox)


@pytest.mark.parametrize("family", ALL)
async def test_every_agent_solves_easy_tasks(family: str) -> None:
    for seed in (0, 9):
        task = make_task(family, seed)
        for manner in Manner:
            session = await solve(task, manner, seed)
            assert session.reward == 1.0, (task.id, manner, session.exchanges)


@pytest.mark.parametrize("difficulty", [Difficulty.MEDIUM, Difficulty.HARD])
@pytest.mark.parametrize("family", ALL)
async def test_agents_solve_longer_tasks(family: str, difficulty: Difficulty) -> None:
    task = make_task(family, 1, difficulty)
    session = await solve(task, Manner.BLUNDERER)
    assert session.reward == 1.0, (task.id, session.exchanges)


@pytest.mark.parametrize("family", ALL)
async def test_every_check_fails_under_its_mutations(family: str) -> None:
    for seed in (2, 3):
        task = make_task(family, seed)
        async with LocalSandboxes().open(task.spec) as sandbox:
            assert dict(await sandbox.tree()) == initial_tree(task.spec)
            session = await record(task, scripted_agent(task, Manner.ORACLE), sandbox)
            tree = await sandbox.tree()
        assert verify(task, tree, session.answer).failed == ()
        broken = list(mutations(task, tree, session.answer))
        assert {type(mutation.check) for mutation in broken} == {type(check) for check in task.checks}
        for mutation in broken:
            verdict = verify(task, mutation.tree, mutation.answer)
            assert mutation.check in verdict.failed
            assert verdict.reward == 0.0


async def test_the_same_session_has_the_same_outputs_twice() -> None:
    for family in ("hashing", "permissions", "scripting", "sqlite"):
        task = make_task(family, 5)
        first, second = [await solve(task, Manner.BLUNDERER) for _ in range(2)]
        assert first == second
