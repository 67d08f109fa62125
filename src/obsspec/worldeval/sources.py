"""A source that is evaluated, opened afresh wherever its memory has to be empty."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from obsspec.protocols import WorldModel
from obsspec.rollout.collector import Shared, WorldModels
from obsspec.values import ConfigError

Build = Callable[[], Any]  # a WorldModel or WorldModels, or a context manager, synchronous or not, that gives one


@dataclass(frozen=True, slots=True)
class Source:
    """One source under its name. `open` gives world models that have learnt nothing; a stateless one never learns."""

    name: str
    build: Build
    stateless: bool = False

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[WorldModels, None]:
        """What the source started is gone when the context is left. Raises what the source raises when it starts."""
        async with AsyncExitStack() as stack:
            built = self.build()
            if isinstance(built, AbstractAsyncContextManager):
                built = await stack.enter_async_context(cast("AbstractAsyncContextManager[Any]", built))
            elif isinstance(built, AbstractContextManager):
                built = stack.enter_context(cast("AbstractContextManager[Any]", built))
            if hasattr(built, "predict"):
                yield Shared(cast("WorldModel", built))
            elif hasattr(built, "open"):
                yield cast("WorldModels", built)
            else:
                raise ConfigError(f"the source {self.name} is no world model: it has no method predict or open")


def one_for_all(name: str, world_model: WorldModel) -> Source:
    """A source that learns nothing from outcomes, so that it never has to be opened afresh."""
    return Source(name, lambda: world_model, stateless=True)


def find_factory(target: str) -> Source:
    """The source that any `package.module:factory` makes, called without arguments. Raises `ConfigError`."""
    module, _, attribute = target.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"--sources {target}: no module {error.name}; leave the source out or install it") from None
    except AttributeError:
        raise ConfigError(f"--sources {target}: {module} has no {attribute}; correct the name") from None
    return Source(attribute, factory)
