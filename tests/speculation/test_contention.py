"""The engine that shares its speed among its requests keeps the promises of a policy, and its books balance."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from obsspec.testing import run_virtual, terminal_script, toy_renderer
from obsspec.testing.conformance.policy import check_policy
from obsspec.testing.contention import ContendedPolicy
from obsspec.testing.scripts import recite
from obsspec.testing.virtual_clock import Backend
from obsspec.values import Sampling

TEN = toy_renderer().call("x" * 8)  # ten tokens
SAMPLING = Sampling(max_tokens=100, stop_token_ids=toy_renderer().stop_token_ids)
PROMPT = toy_renderer().start("go")


@pytest.mark.parametrize("backend", list(Backend))
def test_it_keeps_the_promises_of_a_policy(backend: Backend) -> None:
    policy = ContendedPolicy(terminal_script(), capacity=2, token_s=0.01)

    @asynccontextmanager
    async def factory() -> AsyncGenerator[ContendedPolicy, None]:
        yield policy

    prompts = [toy_renderer().start(text) for text in ("a", "b", "c")]
    run_virtual(lambda: check_policy(factory, prompts=prompts, sampling=SAMPLING), backend=backend)
    assert policy.in_flight == 0


async def timed(policy: ContendedPolicy, starts: list[float], cancel_at: float | None = None) -> list[float]:
    ends = [0.0] * len(starts)

    async def one(index: int, start: float) -> None:
        await anyio.sleep(start)
        with anyio.move_on_after(cancel_at - start if cancel_at is not None and index == 0 else 1e9):
            await policy.generate(PROMPT, SAMPLING)
        ends[index] = anyio.current_time()

    async with anyio.create_task_group() as tasks:
        for index, start in enumerate(starts):
            tasks.start_soon(one, index, start)
    return ends


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        ([0.0], [10.0]),
        ([0.0, 0.0], [10.0, 10.0]),
        ([0.0] * 4, [20.0] * 4),
        ([0.0, 0.0, 4.0], [13.0, 13.0, 17.0]),  # from 4 s on three share two: 6 tokens take 9 s; then 4 are left
        ([0.0, 30.0], [10.0, 40.0]),
    ],
)
def test_requests_beyond_the_capacity_share_it(starts: list[float], ends: list[float]) -> None:
    policy = ContendedPolicy(recite(TEN), capacity=2, token_s=1.0)
    assert run_virtual(timed, policy, starts, backend=Backend.ASYNCIO) == pytest.approx(ends)
    assert policy.tokens == pytest.approx(10 * len(starts))


def test_a_cancelled_request_leaves_its_share_to_the_others() -> None:
    policy = ContendedPolicy(recite(TEN), capacity=1, token_s=1.0)
    assert run_virtual(timed, policy, [0.0, 0.0], 4.0, backend=Backend.ASYNCIO) == pytest.approx([4.0, 12.0])
    assert policy.tokens == pytest.approx(12)
    assert (policy.finished, policy.cancelled) == (1, 1)
