"""The sources that need neither an engine nor the sandbox of the task, by name.

What takes long to start is started once; each model built then has learnt nothing. Each is imported when it is asked
for: the others need not be able to start on this machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from obsspec.protocols import WorldModel
from obsspec.values import ConfigError

if TYPE_CHECKING:
    from obsspec.rollout.collector import WorldModels

Build = Callable[[], "WorldModel | WorldModels"]


@asynccontextmanager
async def open_known(name: str) -> AsyncGenerator[Build, None]:
    """Builds models of the source `name`, one of `KNOWN`. Raises `ConfigError` for a package that is missing."""
    try:
        async with _OPENERS[name]() as build:
            yield build
    except ModuleNotFoundError as error:
        raise ConfigError(f"--sources {name}: no module {error.name}; install it or leave the source out") from None


@asynccontextmanager
async def _rules() -> AsyncGenerator[Build, None]:
    from obsspec.world.rules.model import Rules

    yield Rules


@asynccontextmanager
async def _tools() -> AsyncGenerator[Build, None]:
    from obsspec.world.tools import Tools

    yield Tools


@asynccontextmanager
async def _memory() -> AsyncGenerator[Build, None]:
    from obsspec.world.memory import Memory, Store

    def build() -> WorldModel:
        return Memory(Store())

    yield build


@asynccontextmanager
async def _python() -> AsyncGenerator[Build, None]:
    from obsspec.world.python.replica import PythonReplicas, open_python_replicas

    async with open_python_replicas() as replicas:
        yield lambda: PythonReplicas(replicas.servers)


@asynccontextmanager
async def _shadow() -> AsyncGenerator[Build, None]:
    from obsspec.world.shadow import ShadowWorldModel, open_rooms

    async with open_rooms() as rooms:
        yield lambda: ShadowWorldModel(rooms)


_OPENERS: dict[str, Callable[[], AbstractAsyncContextManager[Build]]] = {
    "rules": _rules,
    "tools": _tools,
    "memory": _memory,
    "python": _python,
    "shadow": _shadow,
}
KNOWN = tuple(_OPENERS)  # cheapest first
