"""A task: an instruction, a starting state as data, checks of the final state, and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from obsspec.sandbox.spec import Entry, EntryKind, SandboxSpec, Tree
from obsspec.tasks.checks import AnswerIs, Check, NothingElseChanged


class Difficulty(StrEnum):
    """EASY: one part, small files. MEDIUM: two parts of one family. HARD: three parts of several families."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


def split_of(seed: int) -> Split:
    """The split a seed belongs to: the last digit 0-7 is train, 8 validation, 9 test."""
    digit = seed % 10
    if digit == 9:
        return Split.TEST
    return Split.VALIDATION if digit == 8 else Split.TRAIN


@dataclass(frozen=True, slots=True)
class Step:
    """One part of the way to the goal, with what a scripted agent may do around it.

    `acts`: equivalent command sequences that do the step. `looks`: commands worth running before it.
    `reviews`: commands that show the result, any one of them is enough. `blunders`: sequences that begin with
    a mistake, repair it, and leave the same state as an act.
    """

    acts: tuple[tuple[str, ...], ...]
    looks: tuple[str, ...] = ()
    reviews: tuple[str, ...] = ()
    blunders: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `answer` is the expected final answer, None when any final answer will do."""

    id: str
    family: str
    difficulty: Difficulty
    seed: int
    split: Split
    instruction: str
    spec: SandboxSpec
    checks: tuple[Check, ...]
    steps: tuple[Step, ...]
    answer: str | None
    max_turns: int

    @property
    def oracle(self) -> tuple[str, ...]:
        """The shortest known list of commands that solves the task."""
        return tuple(command for step in self.steps for command in step.acts[0])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Reward 1.0 when no check failed, else 0.0."""

    reward: float
    failed: tuple[Check, ...]


def initial_tree(spec: SandboxSpec) -> Mapping[str, Entry]:
    """The tree a sandbox starts with, from the spec alone. Specs of this suite have no set-up commands."""
    tree: dict[str, Entry] = {}
    for path in (*spec.directories, *(str(PurePosixPath(file.path).parent) for file in spec.files)):
        for parent in (PurePosixPath(path), *PurePosixPath(path).parents):
            if str(parent) != ".":
                tree[str(parent)] = Entry(EntryKind.DIRECTORY, 0o755)
    for file in spec.files:
        tree[file.path] = Entry(EntryKind.FILE, file.mode, file.content)
    return tree


def changed_paths(check: Check) -> frozenset[str]:
    """The paths a check speaks about: a task that carries it may change them."""
    if isinstance(check, (AnswerIs, NothingElseChanged)):
        return frozenset()
    return frozenset({check.path})


def verify(task: Task, tree: Tree, answer: str | None, start: Tree | None = None) -> Verdict:
    """Judge a final state. `start` replaces the derived initial tree in the "nothing else changed" check."""
    checks = task.checks
    if start is not None:
        checks = tuple(
            NothingElseChanged(start, check.allowed) if isinstance(check, NothingElseChanged) else check
            for check in checks
        )
    failed = tuple(check for check in checks if not check.holds(tree, answer))
    return Verdict(reward=0.0 if failed else 1.0, failed=failed)
