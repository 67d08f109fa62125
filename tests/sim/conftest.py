"""Small engines and workloads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from obsspec.sim.workload import Command, WorkloadSpec
from obsspec.testing.virtual_clock import Backend, run_virtual

T = TypeVar("T")
SMALL = WorkloadSpec(
    (Command("cat", 0.7, 1.0, 0.5), Command("ls", 0.3, 2.0, 0.0)), calls=5.0, calls_sd=2.0, tokens=60.0, spread=1.0
)


def in_virtual_time(function: Callable[[], Awaitable[T]]) -> T:
    return run_virtual(function, backend=Backend.ASYNCIO)
