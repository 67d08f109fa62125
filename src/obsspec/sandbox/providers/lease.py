"""From the creation of a provider's sandbox to its deletion, whatever is cancelled in between."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio

from obsspec.values import ConfigError, SandboxError

T = TypeVar("T")

CREATE_S = 300.0
DELETE_S = 20.0
ATTEMPTS = 3
PAUSE_S = 0.5


@asynccontextmanager
async def lease(create: Callable[[], Awaitable[T]], delete: Callable[[T], Awaitable[None]]) -> AsyncGenerator[T]:
    """What `create` makes, given to `delete` in the end. Both may raise anything; `ConfigError` is passed on.

    Cancelling waits until `create` is done: a sandbox whose name nobody knows could not be deleted. Deleting takes 20 s
    at most; a sandbox that is left behind is ended by its provider after its lifetime, and a warning names the reason.
    """
    try:
        with anyio.fail_after(CREATE_S, shield=True):
            made = await create()
    except TimeoutError as error:
        raise SandboxError(f"the provider made no sandbox within {CREATE_S:g} s") from error
    except ConfigError:
        raise
    except Exception as error:
        raise SandboxError(f"the provider made no sandbox: {str(error) or type(error).__name__}") from error
    try:
        yield made
    finally:
        with anyio.move_on_after(DELETE_S, shield=True) as scope:
            await _delete(made, delete)
        if scope.cancelled_caught:
            _warn(f"no answer for {DELETE_S:g} s")


async def _delete(made: T, delete: Callable[[T], Awaitable[None]]) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await delete(made)
            break
        except Exception as error:  # noqa: BLE001 - packages raise whatever their transports raise
            if attempt == ATTEMPTS:
                _warn(str(error))
        await anyio.sleep(PAUSE_S * attempt)


def _warn(why: str) -> None:
    logging.getLogger(__name__).warning("a sandbox could not be deleted and ends with its lifetime: %s", why)
