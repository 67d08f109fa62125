"""A task of the suite as the collector sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, cast

from obsspec.protocols import Sandbox
from obsspec.rollout.collector import Verdict
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.spec import SandboxSpec, TerminalSandbox
from obsspec.tasks.task import Split, Task, verify


class TerminalSandboxes(Protocol):
    """Opens terminal sandboxes, local or remote."""

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[TerminalSandbox]: ...


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    task: Task
    sandboxes: TerminalSandboxes

    @property
    def task_id(self) -> str:
        return self.task.id

    @property
    def image(self) -> str:
        return self.task.spec.image or self.task.id

    @property
    def split(self) -> Split:
        return self.task.split

    @property
    def instruction(self) -> str:
        return self.task.instruction

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox, None]:
        async with self.sandboxes.open(self.task.spec) as sandbox:
            yield sandbox

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        """Judge the file tree as the committed commands left it, and the final answer."""
        tree = await cast("TerminalSandbox", sandbox).tree()
        verdict = verify(self.task, tree, trajectory.answer)
        return Verdict(verdict.reward, tuple(type(check).__name__ for check in verdict.failed))
