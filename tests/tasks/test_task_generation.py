"""The generator: same arguments, same task; splits that share nothing; instructions a small model can read."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import combinations

import pytest

from obsspec.tasks.checks import NothingElseChanged
from obsspec.tasks.scripted import Manner, scripted_agent
from obsspec.tasks.suite import ALL, make_task, suite
from obsspec.tasks.task import Difficulty, Split, initial_tree, split_of, verify
from obsspec.values import ConfigError

SEEDS = range(60)
DIGEST = """
import hashlib
from obsspec.tasks.suite import ALL, make_task
print(hashlib.sha256(repr([(t.instruction, t.spec, t.oracle, t.answer)
    for f in ALL for t in [make_task(f, s) for s in range(5)]]).encode()).hexdigest())
"""


@pytest.mark.parametrize("difficulty", Difficulty)
@pytest.mark.parametrize("family", ALL)
def test_same_arguments_give_the_same_task(family: str, difficulty: Difficulty) -> None:
    for seed in range(8):
        assert make_task(family, seed, difficulty) == make_task(family, seed, difficulty)


def test_tasks_do_not_depend_on_the_process() -> None:
    here = [make_task(family, seed) for family in ALL for seed in range(5)]
    expected = hashlib.sha256(repr([(t.instruction, t.spec, t.oracle, t.answer) for t in here]).encode()).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    printed = subprocess.run([sys.executable, "-c", DIGEST], env=environment, capture_output=True, check=True)
    assert printed.stdout.decode().strip() == expected


def test_task_of_a_seed_does_not_depend_on_tasks_made_before() -> None:
    make_task("text", 5)
    after = make_task("text", 6)
    make_task("files", 1)
    assert make_task("text", 6) == after


def test_splits_are_disjoint_and_named_by_the_seed() -> None:
    tasks = {split: suite(split, 240) for split in Split}
    for split, members in tasks.items():
        assert {task.split for task in members} == {split}
        assert all(split_of(task.seed) is split for task in members)
    instructions = {split: {task.instruction for task in members} for split, members in tasks.items()}
    for first, second in combinations(Split, 2):
        assert not instructions[first] & instructions[second]


def test_suite_takes_the_families_in_turn() -> None:
    tasks = suite(Split.TRAIN, 7, families=("files", "text", "tir"))
    assert [task.family for task in tasks] == ["files", "text", "tir", "files", "text", "tir", "files"]
    assert len({task.id for task in tasks}) == 7


def test_suites_of_different_seeds_share_no_task() -> None:
    first, second = suite(Split.TRAIN, 60, seed=0), suite(Split.TRAIN, 60, seed=1)
    assert not {task.id for task in first} & {task.id for task in second}


def test_unknown_family_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="unknown task family 'git'"):
        make_task("git", 0)
    with pytest.raises(ConfigError, match="unknown task family 'git'"):
        suite(Split.TRAIN, 1, families=("git",))
    with pytest.raises(ConfigError, match="no task families"):
        suite(Split.TRAIN, 1, families=())


@pytest.mark.parametrize("family", ALL)
def test_doing_nothing_earns_nothing(family: str) -> None:
    for difficulty in Difficulty:
        for seed in SEEDS:
            task = make_task(family, seed, difficulty)
            verdict = verify(task, initial_tree(task.spec), None)
            assert verdict.reward == 0.0
            assert not any(isinstance(check, NothingElseChanged) for check in verdict.failed)


@pytest.mark.parametrize("family", ALL)
def test_nothing_else_changed_is_always_checked(family: str) -> None:
    for difficulty in Difficulty:
        checks = make_task(family, 3, difficulty).checks
        assert sum(isinstance(check, NothingElseChanged) for check in checks) == 1


@pytest.mark.parametrize("family", ALL)
def test_easy_tasks_are_small(family: str) -> None:
    for seed in SEEDS:
        task = make_task(family, seed)
        assert 4 <= len(task.instruction.split()) <= 55
        assert 1 <= len(task.oracle) <= 3
        assert all(len(file.content) < 200 for file in task.spec.files if file.path.endswith((".txt", ".log", ".csv")))


@pytest.mark.parametrize("family", ALL)
def test_scripted_sessions_fit_the_turn_limit(family: str) -> None:
    for difficulty in Difficulty:
        for seed in SEEDS:
            task = make_task(family, seed, difficulty)
            for manner in Manner:
                assert len(scripted_agent(task, manner).commands) <= task.max_turns


@pytest.mark.parametrize("family", ALL)
def test_paths_of_a_task_are_distinct(family: str) -> None:
    for difficulty in Difficulty:
        for seed in SEEDS:
            spec = make_task(family, seed, difficulty).spec
            paths = [*spec.directories, *(file.path for file in spec.files)]
            assert len(paths) == len(set(paths))
            assert not spec.setup
