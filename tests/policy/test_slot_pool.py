"""One request a slot, committed ones first, and no slot is ever lost."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from obsspec.policy.slot_pool import SlotPool
from obsspec.policy.slots import SlotTable
from obsspec.testing.virtual_clock import Backend, backend_options
from obsspec.values import EngineError, Priority, Sampling, Tokens

pytestmark = pytest.mark.anyio

SAMPLING = Sampling(8)
ONE, TWO, THREE = (tuple(range(start, start + 200)) for start in (1000, 2000, 3000))


@pytest.fixture(params=[Backend.TRIO, Backend.ASYNCIO])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return str(request.param), backend_options(request.param)


class Engine:
    """Saves and restores in a tenth of a second, or fails."""

    def __init__(self, count: int = 1, *, fails: frozenset[str] = frozenset()) -> None:
        self.done: list[tuple[int, str, str]] = []
        self.table = SlotTable(count, keep=4)
        self.pool = SlotPool(self.table, self.act)
        self.order: list[str] = []
        self._fails = fails

    async def act(self, slot: int, action: str, name: str) -> None:
        await anyio.sleep(0.1)
        if action in self._fails:
            raise EngineError("disk full")
        self.done.append((slot, action, name))

    async def use(
        self, name: str, prompt: Tokens = ONE, priority: Priority = Priority.COMMITTED, seconds: float = 1.0
    ) -> None:
        async with self.pool.lease(prompt, SAMPLING, priority) as lease:
            self.order.append(name)
            await anyio.sleep(seconds)
            lease.held = prompt


async def test_committed_requests_go_first_and_each_kind_in_order() -> None:
    engine = Engine()
    async with anyio.create_task_group() as tasks:
        for name in ("running", "s1", "c1", "s2", "c2"):
            priority = Priority.SPECULATIVE if name[0] == "s" else Priority.COMMITTED
            tasks.start_soon(engine.use, name, ONE, priority)
            await anyio.sleep(0.01)
    assert engine.order == ["running", "c1", "c2", "s1", "s2"]
    assert engine.pool.busy == 0


async def test_a_branch_that_is_claimed_while_it_waits_goes_before_all_speculation() -> None:
    """By its age also before committed requests that came later; and what does not wait can not be promoted."""
    engine = Engine()
    async with anyio.create_task_group() as tasks:
        for name, prompt in (("running", ONE), ("s1", ONE), ("s2", TWO), ("s3", THREE), ("c1", THREE)):
            priority = Priority.COMMITTED if name == "c1" else Priority.SPECULATIVE
            tasks.start_soon(engine.use, name, prompt, priority)
            await anyio.sleep(0.01)
        engine.pool.promote(TWO, Sampling(9))
        engine.pool.promote((*TWO, 1), SAMPLING)
        await anyio.sleep(0.01)
        engine.pool.promote(TWO, SAMPLING)
        engine.pool.promote(TWO, SAMPLING)
    assert engine.order == ["running", "s2", "c1", "s1", "s3"]
    assert engine.pool.busy == 0


@pytest.mark.parametrize("cancel_s", [0.0, 0.05, 0.15, 0.25, 0.5])
async def test_d09_a_slot_survives_cancellation_at_any_point(cancel_s: float) -> None:
    engine = Engine()
    await engine.use("first", ONE)
    await engine.use("second", TWO)  # saves ONE
    with anyio.move_on_after(cancel_s):
        await engine.use("third", (*ONE, 1))  # saves TWO, restores ONE
    assert engine.pool.busy == 0
    with anyio.fail_after(2):
        await engine.use("fourth", (*TWO, 1), seconds=0)
    assert engine.pool.busy == 0


async def test_d09_cancelled_waiters_leave_the_line() -> None:
    engine = Engine()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.use, "running")
        await anyio.sleep(0.01)
        for number in range(20):
            with anyio.move_on_after(0.01):
                await engine.use(f"cancelled-{number}")
        tasks.start_soon(engine.use, "next")
    assert engine.order == ["running", "next"]
    assert engine.pool.busy == 0


async def test_a_slot_that_changes_hands_is_saved_and_restored() -> None:
    engine = Engine()
    await engine.use("first", ONE)
    await engine.use("second", TWO)
    await engine.use("third", (*ONE, 1))
    (first, second, third) = engine.done
    assert first[:2] == (0, "save")
    assert second[:2] == (0, "save")
    assert third == (0, "restore", first[2])


@pytest.mark.parametrize("fails", [{"save"}, {"restore"}, {"save", "restore"}])
async def test_a_copy_that_fails_only_costs_time(fails: set[str]) -> None:
    engine = Engine(fails=frozenset(fails))
    for number, prompt in enumerate((ONE, TWO, (*ONE, 1), (*TWO, 1), THREE)):
        await engine.use(str(number), prompt)
    assert engine.order == ["0", "1", "2", "3", "4"]
    assert engine.pool.busy == 0


async def test_siblings_wait_for_the_copy_of_their_prefix() -> None:
    engine = Engine(count=3)
    siblings = [((*ONE, *range(start, start + 30)), f"s{start}") for start in (1, 100)]
    for _ in range(2):  # the first round shows that there are siblings
        await engine.use("trunk", ONE)
        async with anyio.create_task_group() as tasks:
            for prompt, name in siblings:
                tasks.start_soon(engine.use, name, prompt, Priority.SPECULATIVE)
        engine.table.forget()
        engine.table.dropped.clear()
    saved, restored = engine.done
    assert (saved[1], restored[1]) == ("save", "restore")
    assert saved[2] == restored[2]
    assert saved[0] != restored[0]


async def test_a_committed_request_waits_a_moment_for_the_branch_that_has_its_prefix() -> None:
    engine = Engine(count=2)
    await engine.use("trunk", ONE)
    branch = anyio.CancelScope()

    async def speculate() -> None:
        with branch:
            await engine.use("branch", (*ONE, 1), Priority.SPECULATIVE, seconds=60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(speculate)
        await anyio.sleep(0.5)
        branch.cancel()
        before = anyio.current_time()
        async with engine.pool.lease((*ONE, 2), SAMPLING, Priority.COMMITTED) as lease:
            assert lease.slot == 0
            assert anyio.current_time() - before < 0.01


async def test_a_committed_request_does_not_wait_for_a_branch_that_stays() -> None:
    engine = Engine(count=2)
    await engine.use("trunk", ONE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.use, "branch", (*ONE, 1), Priority.SPECULATIVE, 60.0)
        await anyio.sleep(0.5)
        before = anyio.current_time()
        async with engine.pool.lease((*ONE, 2), SAMPLING, Priority.COMMITTED) as lease:
            assert lease.slot == 1
            assert anyio.current_time() - before < 0.1
        tasks.cancel_scope.cancel()


async def test_a_sibling_goes_on_when_the_copy_it_waits_for_is_cancelled() -> None:
    engine = Engine(count=3)
    engine.table.place(ONE, speculative=True)
    engine.table.place(ONE, speculative=True)  # shows that there are siblings
    engine.table.release(0, ONE)
    engine.table.release(1, ())
    first = anyio.CancelScope()

    async def cancelled() -> None:
        with first:
            await engine.use("first", (*ONE, 1), Priority.SPECULATIVE)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled)
            await anyio.sleep(0.02)
            tasks.start_soon(engine.use, "second", (*ONE, 2), Priority.SPECULATIVE)
            await anyio.sleep(0.02)
            first.cancel()
    assert engine.order == ["second"]
    assert engine.done == []
    assert engine.pool.busy == 0
