"""The environment that a recorded rollout ran in, for sources that need one of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from obsspec.protocols import Sandbox
from obsspec.rollout.collector import Environment, Verdict
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.local import LocalSandboxes
from obsspec.tasks.environment import TaskEnvironment
from obsspec.tasks.suite import ALL, make_task
from obsspec.tasks.task import Difficulty
from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class Unknown:
    """A task of which only the recorded rollouts are left."""

    task_id: str
    image: str
    instruction: str = ""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox, None]:
        """Raises `ConfigError`."""
        raise ConfigError(f"no sandbox of the recorded task {self.task_id} can be made: leave out sources that need it")
        yield

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        return Verdict(0.0, ("not verified: recorded",))


def environment_of(task: str, image: str) -> Environment:
    """A task of the suite is made again from its id; its sandboxes are local. Anything else is `Unknown`."""
    family, _, rest = task.partition("-")
    difficulty, _, seed = rest.partition("-")
    if family in ALL and difficulty in tuple(Difficulty) and seed.isdecimal():
        return TaskEnvironment(make_task(family, int(seed), Difficulty(difficulty)), LocalSandboxes())
    return Unknown(task, image)
