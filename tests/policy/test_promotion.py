"""A claimed branch that still waits for a slot is served as what it is now: the committed turn."""

from __future__ import annotations

import anyio
import pytest

from obsspec.policy.retry import Retrying
from obsspec.policy.slot_pool import SlotPool
from obsspec.policy.slots import SlotTable
from obsspec.protocols import OnTokens, Policy
from obsspec.testing import ScriptedPolicy
from obsspec.testing.virtual_clock import Backend, backend_options
from obsspec.values import Completion, Priority, Sampling, Tokens
from tests.core.scene import Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio

OTHERS = tuple(range(500, 540))


@pytest.fixture(params=[Backend.TRIO, Backend.ASYNCIO])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return str(request.param), backend_options(request.param)


class OneSlot:
    """A scripted engine that serves one request at a time, from a real pool."""

    weight_version = "0"

    def __init__(self, inner: ScriptedPolicy) -> None:
        self.pool = SlotPool(SlotTable(1, keep=2), self._act)
        self._inner = inner

    @property
    def open(self) -> int:
        return len(self._inner.open) + self.pool.busy

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        self.pool.promote(prompt, sampling)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        async with self.pool.lease(prompt, sampling, priority):
            return await self._inner.generate(prompt, sampling, priority=priority, on_tokens=on_tokens)

    async def occupy(self, priority: Priority, seconds: float) -> None:
        """What other rollouts do there."""
        async with self.pool.lease(OTHERS, Sampling(1), priority):
            await anyio.sleep(seconds)

    async def _act(self, slot: int, action: str, name: str) -> None:
        return None


class Deaf:
    """The same engine behind a client that can not promote."""

    weight_version = "0"

    def __init__(self, engine: Policy) -> None:
        self.generate = engine.generate


@pytest.mark.parametrize(("promotes", "turn_s"), [(True, 10.0), (False, 110.0)])
async def test_h03_a_claimed_branch_does_not_wait_behind_the_speculation_of_others(
    promotes: bool, turn_s: float
) -> None:
    """The branch waits from 2 s on, others speculate for 100 s before it in the line, the tool answers at 11 s, and
    the slot is free at 20 s."""
    scene = Scene(recite(call("ls"), answer()), says("a"))
    engine = OneSlot(scene.make_policy())
    scene.policy = Retrying(engine if promotes else Deaf(engine))  # pyright: ignore
    async with anyio.create_task_group() as tasks:

        async def others() -> None:
            await anyio.sleep(1.5)
            tasks.start_soon(engine.occupy, Priority.COMMITTED, 18.5)
            await anyio.sleep(0.1)
            await engine.occupy(Priority.SPECULATIVE, 100.0)

        tasks.start_soon(others)
        played = await scene.speculative()
    first, second = played.trajectory.turns
    assert second.generate_end_s - second.generate_start_s == pytest.approx(turn_s)
    assert first.tool_end_s == (11.0,)
    assert len(scene.requests) == 2, "kept, not made again"
    assert engine.open == 0
