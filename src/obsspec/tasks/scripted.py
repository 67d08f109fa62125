"""Scripted agents: they solve tasks without a model, each in its own manner, and leave real sessions behind."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Protocol

from obsspec.tasks.task import Step, Task
from obsspec.values import Exchange

DONE = "done"


class Manner(StrEnum):
    """ORACLE: only the needed commands. EXPLORER: looks before, reviews after. BLUNDERER: makes a mistake, repairs it.
    CARELESS: like the oracle, but looks or reviews now and then."""

    ORACLE = "oracle"
    EXPLORER = "explorer"
    BLUNDERER = "blunderer"
    CARELESS = "careless"


@dataclass(frozen=True, slots=True)
class Final:
    """The agent is done and gives this answer."""

    answer: str


class ScriptedAgent(Protocol):
    @property
    def name(self) -> str: ...

    def next(self, history: Sequence[Exchange]) -> str | Final:
        """The next command, or the final answer, after these exchanges."""
        ...


@dataclass(frozen=True, slots=True)
class Scripted:
    """An agent whose commands were all chosen beforehand, from the task and a seed."""

    name: str
    commands: tuple[str, ...]
    answer: str

    def next(self, history: Sequence[Exchange]) -> str | Final:
        return self.commands[len(history)] if len(history) < len(self.commands) else Final(self.answer)


def scripted_agent(task: Task, manner: Manner, seed: int = 0) -> Scripted:
    """The agent of this manner for one task. The same arguments give the same commands."""
    key = f"{task.id}/{manner}/{seed}"
    rng = Random(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
    if manner is Manner.ORACLE:
        commands = [command for step in task.steps for command in rng.choice(step.acts)]
    else:
        commands = _PLANS[manner](task, rng)
    return Scripted(manner, tuple(commands), task.answer or DONE)


def _explore(task: Task, rng: Random) -> list[str]:
    commands = [command for step in task.steps for command in _around(step, list(rng.choice(step.acts)), rng)]
    listable = bool(task.spec.files) and commands[0] != "ls"
    return ["ls", *commands] if listable and rng.random() < 0.3 else commands


def _around(step: Step, acts: list[str], rng: Random) -> list[str]:
    before = list(step.looks)
    after = [rng.choice(step.reviews)] if step.reviews else []
    return [*before, *acts, *after]


def _blunder(task: Task, rng: Random) -> list[str]:
    able = [i for i, step in enumerate(task.steps) if step.blunders]
    chosen = rng.choice(able) if able else -1
    commands: list[str] = []
    for i, step in enumerate(task.steps):
        acts = list(rng.choice(step.blunders) if i == chosen else rng.choice(step.acts))
        before = list(step.looks) if rng.random() < 0.5 else []
        after = [rng.choice(step.reviews)] if step.reviews else []
        commands += [*before, *acts, *after]
    return commands


def _careless(task: Task, rng: Random) -> list[str]:
    commands: list[str] = []
    for step in task.steps:
        before = list(step.looks) if rng.random() < 0.4 else []
        after = [rng.choice(step.reviews)] if step.reviews and rng.random() < 0.6 else []
        commands += [*before, *rng.choice(step.acts), *after]
    return commands


_PLANS = {Manner.EXPLORER: _explore, Manner.BLUNDERER: _blunder, Manner.CARELESS: _careless}
