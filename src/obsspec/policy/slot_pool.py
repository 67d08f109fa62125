"""Hands out the engine's slots: one request each, committed requests first, prefixes copied where that pays."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from obsspec.policy.slots import Placement, SlotTable
from obsspec.values import EngineError, Priority, Sampling, Tokens

# A branch that has just been discarded lets go of its slot within a few turns of the event loop.
_LET_GO_S = 0.05
_RANK = {Priority.COMMITTED: 0, Priority.SPECULATIVE: 1}


@dataclass(slots=True)
class Lease:
    """`held`: what the slot holds, kept up to date by whoever uses it."""

    slot: int
    held: Tokens


@dataclass(order=True, slots=True)
class _Waiter:
    rank: int
    number: int
    prompt: Tokens = field(compare=False)
    sampling: Sampling = field(compare=False)
    ready: anyio.Event = field(compare=False, default_factory=anyio.Event)
    lease: Lease | None = field(compare=False, default=None)
    placement: Placement | None = field(compare=False, default=None)


# (slot, "save" or "restore", snapshot name); raises `EngineError`
SlotAction = Callable[[int, str, str], Awaitable[None]]


class SlotPool:
    def __init__(self, table: SlotTable, act: SlotAction) -> None:
        self._table = table
        self._act = act
        self._waiting: list[_Waiter] = []
        self._number = 0
        self._released = anyio.Event()
        self._saved: dict[str, anyio.Event] = {}

    @property
    def busy(self) -> int:
        """Slots in use."""
        return sum(slot.busy for slot in self._table.slots)

    @asynccontextmanager
    async def lease(self, prompt: Tokens, sampling: Sampling, priority: Priority) -> AsyncGenerator[Lease, None]:
        """A slot for this prompt, idle at the engine, or soon: the engine queues for a slot that is being freed.

        Waits while all are in use. Cancelled at any point: the slot, if there is one, goes to the next in line.
        """
        if priority is Priority.COMMITTED:
            await self._let_go(prompt)
        waiter = _Waiter(_RANK[priority], self._number, prompt, sampling)
        self._number += 1
        heapq.heappush(self._waiting, waiter)
        self._assign()
        try:
            await waiter.ready.wait()
            assert waiter.lease is not None
            assert waiter.placement is not None
            await self._copy(waiter.placement, waiter.lease)
            yield waiter.lease
        finally:
            self._finish(waiter)

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        """A speculative request is committed now. If it waits, it goes before all that are not, by its age."""
        for waiter in self._waiting:
            if (waiter.prompt, waiter.sampling) == (prompt, sampling):
                waiter.rank = _RANK[Priority.COMMITTED]
                heapq.heapify(self._waiting)
                return

    def _assign(self) -> None:
        while self._waiting:
            waiter = self._waiting[0]
            held = {slot.number: slot.held for slot in self._table.slots}
            placement = self._table.place(waiter.prompt, speculative=waiter.rank > 0)
            if placement is None:
                return
            heapq.heappop(self._waiting)
            if placement.save is not None:
                self._saved[placement.save] = anyio.Event()
            waiter.placement, waiter.lease = placement, Lease(placement.slot, held[placement.slot])
            waiter.ready.set()

    def _finish(self, waiter: _Waiter) -> None:
        if waiter.lease is None:
            self._waiting.remove(waiter)
            heapq.heapify(self._waiting)
            return
        if waiter.placement is not None and waiter.placement.save in self._saved:
            self._end_save(waiter.placement.save, saved=False)  # cancelled before it could be
        self._table.release(waiter.lease.slot, waiter.lease.held)
        self._released.set()
        self._released = anyio.Event()
        self._assign()

    async def _let_go(self, prompt: Tokens) -> None:
        with anyio.move_on_after(_LET_GO_S):
            while self._table.wants_busy(prompt):
                await self._released.wait()

    async def _copy(self, placement: Placement, lease: Lease) -> None:
        """A copy that fails costs time, not correctness: the engine compares the tokens that a slot holds itself."""
        if placement.save is not None:
            await self._save(placement.save, lease.slot)
        if placement.restore is None:
            return
        if (saving := self._saved.get(placement.restore)) is not None:
            await saving.wait()
        held = self._table.snapshots.get(placement.restore)
        if held is None:
            return
        lease.held = ()
        try:
            await self._act(lease.slot, "restore", placement.restore)
            lease.held = held
        except EngineError:
            self._table.drop(placement.restore)

    async def _save(self, name: str, slot: int) -> None:
        try:
            await self._act(slot, "save", name)
        except EngineError:
            self._end_save(name, saved=False)
        else:
            self._end_save(name, saved=True)

    def _end_save(self, name: str, *, saved: bool) -> None:
        if not saved:
            self._table.drop(name)
        self._saved.pop(name).set()
