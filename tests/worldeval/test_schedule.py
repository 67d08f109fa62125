"""The protocols: who shares a memory with whom, in which order, and that test tasks teach nothing before the test."""

from __future__ import annotations

from obsspec.worldeval.rows import Entry
from obsspec.worldeval.schedule import Protocol, is_test, scopes


def entries(*tasks: str) -> list[Entry]:
    return [Entry(task, f"r{number}", "", [], 1) for number, task in enumerate(tasks)]


def shape(rollouts: list[Entry], protocol: Protocol, share: float = 1.0) -> list[list[str]]:
    return [[item.entry.traj for item in scope] for scope in scopes(rollouts, protocol, share, 0)]


def test_cold_shares_nothing_and_epochs_everything() -> None:
    rollouts = entries("a", "b", "a")
    assert shape(rollouts, Protocol.COLD) == [["r0"], ["r1"], ["r2"]]
    assert shape(rollouts, Protocol.EPOCHS) == [["r0", "r1", "r2"]]


def test_a_group_is_at_most_16_rollouts_of_one_task() -> None:
    rollouts = entries(*["a", "b"] * 20)
    found = shape(rollouts, Protocol.GROUP)
    assert [len(scope) for scope in found] == [16, 4, 16, 4]
    for scope in scopes(rollouts, Protocol.GROUP, 1.0, 0):
        assert len({item.entry.task for item in scope}) == 1


def test_training_tasks_come_first_and_only_where_they_can_teach() -> None:
    rollouts = entries(*[f"t{number % 10}" for number in range(30)])
    (scope,) = scopes(rollouts, Protocol.EPOCHS, 0.5, 0)
    tested = [item.test for item in scope]
    assert tested == sorted(tested)
    assert 0 < sum(tested) < 30
    assert len(scope) == 30
    assert not {item.entry.task for item in scope if item.test} & {item.entry.task for item in scope if not item.test}
    for protocol in (Protocol.COLD, Protocol.GROUP):
        assert sum(len(each) for each in scopes(rollouts, protocol, 0.5, 0)) == sum(tested)


def test_the_split_is_a_function_of_task_and_seed() -> None:
    tasks = [f"task-{number}" for number in range(200)]
    split = [is_test(task, 0.5, 0) for task in tasks]
    assert split == [is_test(task, 0.5, 0) for task in tasks]
    assert split != [is_test(task, 0.5, 1) for task in tasks]
    assert 70 < sum(split) < 130
    assert all(is_test(task, 1.0, 0) for task in tasks)
