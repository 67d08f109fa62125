"""Run async code in virtual time: a sleep costs nothing, and an hour of waiting passes in microseconds.

On trio the tasks that are ready at the same instant run in random order; on asyncio in order of arrival. Code that
holds under both does not lean on an order.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from importlib import import_module
from random import Random
from typing import Any, TypeVar, TypeVarTuple

import anyio

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Backend(StrEnum):
    TRIO = "trio"
    ASYNCIO = "asyncio"


def run_virtual(
    function: Callable[[*Args], Awaitable[T]],
    *args: *Args,
    backend: Backend = Backend.TRIO,
    seed: int | None = None,
) -> T:
    """The result of `function(*args)`, run in virtual time that starts at 0.

    `seed` makes trio's order of ready tasks repeatable. On asyncio a program in which nothing can ever happen again
    raises `DeadlockError`; on trio it hangs, so give such tests a time limit.
    """
    if backend == Backend.TRIO and seed is not None:
        seed_order(seed)
    return anyio.run(function, *args, backend=backend, backend_options=backend_options(backend))


def backend_options(backend: Backend) -> dict[str, Any]:
    """Options of `anyio.run`, and of the fixture `anyio_backend` of its pytest plugin, for virtual time."""
    if backend == Backend.ASYNCIO:
        return {"loop_factory": VirtualLoop}
    testing = import_module("trio.testing")
    return {"clock": testing.MockClock(autojump_threshold=0)}


class DeadlockError(AssertionError):
    """Every task waits and no timer is set: nothing can happen any more."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock jumps to the next timer when no task is ready. No threads, no sockets."""

    def __init__(self) -> None:
        self._selector_of_time = _JumpingSelector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        return self._selector_of_time.now


class _JumpingSelector(selectors.BaseSelector):
    """A selector that, asked to wait, moves the clock instead."""

    def __init__(self) -> None:
        self.now = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("all tasks wait and no timer is set")
        self.now += max(0.0, timeout)
        return self._inner.select(0) if timeout <= 0 else []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


def seed_order(seed: int) -> None:
    """From now on trio's order of ready tasks depends on this seed and the program alone.

    trio shuffles ready tasks with a module-level generator, which it registers with Hypothesis the same way.
    """
    run: Any = import_module("trio._core._run")
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    generator: Random = run._r
    generator.seed(seed)
