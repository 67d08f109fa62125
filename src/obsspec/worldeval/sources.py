"""The sources that can be evaluated, by name; each is opened afresh wherever its memory has to be empty."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from obsspec.protocols import WorldModel
from obsspec.values import ConfigError

Build = Callable[[], Any]  # a WorldModel, or a context manager, synchronous or not, that gives one


@dataclass(frozen=True, slots=True)
class Source:
    """One source under its name. `open` gives a world model that has learnt nothing."""

    name: str
    build: Build

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[WorldModel, None]:
        """What the source started is gone when the context is left. Raises what the source raises when it starts."""
        async with AsyncExitStack() as stack:
            built = self.build()
            if isinstance(built, AbstractAsyncContextManager):
                built = await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", built))
            elif isinstance(built, AbstractContextManager):
                built = stack.enter_context(cast("AbstractContextManager[Any]", built))
            if not hasattr(built, "predict"):
                raise ConfigError(f"the source {self.name} is no world model: it has no method predict")
            yield cast("WorldModel", built)


# Cheapest first: the order of the cascade.
KNOWN = {
    "rules": "obsspec.world.rules:RulesWorldModel",
    "tools": "obsspec.world.tools:Tools",
    "memory": "obsspec.world.memory:MemoryWorldModel",
    "python": "obsspec.world.python:PythonWorldModel",
    "shadow": "obsspec.world.shadow:ShadowWorldModel",
}


def find_source(name: str) -> Source:
    """A known source, or any `package.module:factory`. Raises `ConfigError`."""
    target = KNOWN.get(name, name)
    if ":" not in target:
        raise ConfigError(
            f"--sources: unknown {name!r}; known: {', '.join(KNOWN)}, or a factory as package.module:name"
        )
    module, _, attribute = target.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"--sources {name}: no module {error.name}; leave the source out or install it") from None
    except AttributeError:
        raise ConfigError(f"--sources {name}: {module} has no {attribute}; leave the source out") from None
    return Source(name.rpartition(":")[2], factory)
