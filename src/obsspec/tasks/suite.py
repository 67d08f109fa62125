"""From (family, seed, difficulty) to a task, and whole suites of them. The same arguments give the same task.

The seed names the split (`split_of`), and the instruction's hash must name the same one: splits share neither seeds
nor instructions, whatever the size of a kind's vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import islice
from random import Random

from obsspec.sandbox.spec import SandboxSpec
from obsspec.tasks.checks import NothingElseChanged
from obsspec.tasks.draft import Draft, Draw, Kind
from obsspec.tasks.families import FAMILIES
from obsspec.tasks.task import Difficulty, Split, Task, changed_paths, initial_tree, split_of
from obsspec.values import ConfigError

ALL = tuple(FAMILIES)
MAX_TURNS = {Difficulty.EASY: 10, Difficulty.MEDIUM: 18, Difficulty.HARD: 26}
SEEDS_PER_SUITE = 1_000_000


def make_task(family: str, seed: int, difficulty: Difficulty = Difficulty.EASY) -> Task:
    """The task of this family and seed. Raises `ConfigError` for an unknown family."""
    if family not in FAMILIES:
        raise ConfigError(f"unknown task family {family!r}: choose from {', '.join(ALL)}")
    id_ = f"{family}-{difficulty}-{seed}"
    draft = _draft(family, id_, difficulty, split_of(seed))
    spec = SandboxSpec(directories=draft.directories, files=draft.files, image=id_)
    touched = frozenset[str]().union(*(changed_paths(check) for check in draft.checks))
    rest = NothingElseChanged(initial_tree(spec), touched)
    return Task(
        id=id_,
        family=family,
        difficulty=difficulty,
        seed=seed,
        split=split_of(seed),
        instruction=draft.instruction,
        spec=spec,
        checks=(*draft.checks, rest),
        steps=draft.steps,
        answer=draft.answer,
        max_turns=MAX_TURNS[difficulty],
    )


def _draft(family: str, id_: str, difficulty: Difficulty, split: Split) -> Draft:
    """The first draft whose instruction belongs to `split`: an instruction can then never occur in two splits."""
    draws = (Draw(Random(_stable_seed(f"{id_}/{attempt}")), difficulty) for attempt in count_from())
    drafts = (_joined(_drafts(family, draw)) for draw in draws)
    return next(draft for draft in drafts if split_of(_stable_seed(draft.instruction)) is split)


def suite(
    split: Split,
    count: int,
    families: Sequence[str] = ALL,
    difficulty: Difficulty = Difficulty.EASY,
    seed: int = 0,
) -> list[Task]:
    """`count` tasks of one split, taking the families in turn. Suites of different `seed` share no task.

    Raises `ConfigError` for an unknown family, or none.
    """
    if not families:
        raise ConfigError(f"no task families given: choose from {', '.join(ALL)}")
    seeds = _seeds(split, seed)
    rounds = -(-count // len(families))
    tasks = (make_task(family, task_seed, difficulty) for task_seed in islice(seeds, rounds) for family in families)
    return list(islice(tasks, count))


def _seeds(split: Split, seed: int) -> Iterator[int]:
    return (value for value in count_from(seed * SEEDS_PER_SUITE) if split_of(value) is split)


def _stable_seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _drafts(family: str, draw: Draw) -> list[Draft]:
    """The parts of a task. Only the last may ask for an answer: a session has one final answer."""
    if draw.difficulty is Difficulty.EASY:
        return [draw.pick(*FAMILIES[family])(draw)]
    if draw.difficulty is Difficulty.MEDIUM:
        kinds = draw.rng.sample(FAMILIES[family], len(FAMILIES[family]))
        return [*_silent(kinds[1:], draw, 1), kinds[0](draw)]
    last = draw.pick(*FAMILIES[family])
    others = [draw.pick(*FAMILIES[name]) for name in draw.rng.sample([n for n in ALL if n != family], 6)]
    return [*_silent(others, draw, 2), last(draw)]


def _silent(kinds: Sequence[Kind], draw: Draw, count: int) -> list[Draft]:
    """The first `count` drafts that ask for no answer; file tasks stand in where there are too few."""
    drafts = (kind(draw) for kind in (*kinds, *FAMILIES["files"]))
    return list(islice((draft for draft in drafts if draft.answer is None), count))


def _joined(drafts: list[Draft]) -> Draft:
    if len(drafts) == 1:
        return drafts[0]
    return Draft(
        instruction=" ".join(f"{i}. {draft.instruction}" for i, draft in enumerate(drafts, 1)),
        steps=tuple(step for draft in drafts for step in draft.steps),
        checks=tuple(check for draft in drafts for check in draft.checks),
        files=tuple(file for draft in drafts for file in draft.files),
        directories=tuple(path for draft in drafts for path in draft.directories),
        answer=drafts[-1].answer,
    )
