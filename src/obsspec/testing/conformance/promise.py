"""What the suites share: broken promises, and cancelled calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

OpenProbe = Callable[[], Awaitable[int]]
"""How many requests the part under test has open now, seen from its far side: at the engine, in the sandbox."""


class BrokenPromiseError(AssertionError):
    """An adapter does not keep a promise of `obsspec.protocols`; the message says which."""


def require(kept: bool, promise: str) -> None:
    if not kept:
        raise BrokenPromiseError(promise)


async def cancelled_after(call: Callable[[], Awaitable[object]], after_s: float, patience_s: float) -> None:
    """Start the call, cancel it, and require that it ends soon. A call that is done earlier is fine too."""
    deadline = anyio.current_time() + after_s + patience_s
    with anyio.move_on_after(after_s):
        await call()
    require(anyio.current_time() <= deadline, "a cancelled call ends promptly")


async def nothing_open(probe: OpenProbe | None, patience_s: float) -> None:
    """Require that the far side has nothing open, after at most `patience_s`."""
    if probe is None:
        return
    deadline = anyio.current_time() + patience_s
    while (open_now := await probe()) and anyio.current_time() < deadline:  # noqa: ASYNC110 - only a probe can tell
        await anyio.sleep(0.05)
    require(open_now == 0, f"a cancelled call leaves nothing open; found {open_now}")
