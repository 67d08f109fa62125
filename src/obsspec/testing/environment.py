"""A scripted task: its sandbox answers by hash, and its verifier looks at what was executed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b

import anyio

from obsspec.protocols import Sandbox
from obsspec.rollout.collector import Verdict
from obsspec.rollout.trajectory import Trajectory
from obsspec.testing.sandbox import Answer, Mishap, ScriptedSandbox
from obsspec.values import SandboxError, ToolCall


class ScriptedEnvironment:
    """Keeps every sandbox it opened in `sandboxes`; `open_now` counts those that are not closed."""

    def __init__(
        self,
        task_id: str,
        answer: Answer,
        *,
        delay_s: Callable[[ToolCall], float] | None = None,
        fault: Callable[[int], SandboxError | None] | None = None,
        way_s: Callable[[int], float] | None = None,
        mishap: Callable[[int], Mishap | None] | None = None,
        jobs: Callable[[ToolCall], bool] | None = None,
        tells: Callable[[int], float] | None = None,
        instruction: str = "say hello",
    ) -> None:
        self.task_id = task_id
        self.image = task_id
        self.instruction = instruction
        self._answer = answer
        self._delay_s = delay_s
        self._fault = fault
        self._way_s = way_s
        self._mishap = mishap
        self._jobs = jobs
        self._tells = tells
        self.sandboxes: list[ScriptedSandbox] = []
        self.open_now = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ScriptedSandbox]:
        """Leaving ends what still waits at the far end of the wire."""
        error: Exception | None = None
        async with anyio.create_task_group() as tasks:
            sandbox = ScriptedSandbox(
                self._answer,
                delay_s=self._delay_s,
                fault=self._fault,
                way_s=self._way_s,
                mishap=self._mishap,
                jobs=self._jobs,
                tells=self._tells,
                tasks=tasks,
            )
            self.sandboxes.append(sandbox)
            self.open_now += 1
            try:
                yield sandbox
            except Exception as raised:  # noqa: BLE001 - re-raised below, outside the task group that would wrap it
                error = raised
            finally:
                self.open_now -= 1
                tasks.cancel_scope.cancel()
        if error is not None:
            raise error

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        """A reward that any other command, order, observation or answer would change."""
        assert isinstance(sandbox, ScriptedSandbox)
        seen = [(entry.call.command, entry.observation) for entry in sandbox.log]
        digest = blake2b(f"{seen}/{trajectory.answer}".encode(errors="surrogatepass"), digest_size=2).digest()
        return Verdict(int.from_bytes(digest, "big") / 65536)
