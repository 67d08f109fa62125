"""One timer of a simulation: calls a function at a moment of virtual time, and can be set again for free.

Thousands of timers a second are what a simulated engine is made of; this one is the event loop's own, without a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` at the time it is set to. Simulations run on `VirtualLoop`, an asyncio loop.

    Set to a later moment, it keeps the old one and rings too early once: `ring` looks at the clock anyway.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def now(self) -> float:
        return self._loop.time()

    def set(self, at_s: float) -> None:
        if self._handle is not None:
            if self._handle.when() <= at_s:
                return
            self._handle.cancel()
        self._handle = self._loop.call_at(at_s, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._ring()
