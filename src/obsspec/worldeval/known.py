"""The sources of an evaluation by name. What takes long to start is started once; what was learnt is always new."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from rich.console import Console

from obsspec.rollout.collector import Environment
from obsspec.sandbox.profile import Profile, parse_profile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.tasks.environment import TaskEnvironment
from obsspec.values import ConfigError
from obsspec.world.known import KNOWN, open_known
from obsspec.worldeval.lm import open_language_model
from obsspec.worldeval.settings import EvalSettings, names
from obsspec.worldeval.sources import Build, Source, find_factory, one_for_all

LM, REPLICA = "lm", "replica"


def open_source(name: str, settings: EvalSettings, console: Console) -> AbstractAsyncContextManager[Source]:
    """A known source, or any `package.module:factory`; it ends with the context. Raises `ConfigError`."""
    if name == LM:
        return _language_model(settings, console)
    if ":" in name:
        return _ready(find_factory(name))
    if name == REPLICA:
        return _opened(name, _replica(parse_profile(settings.determinism)))
    if name not in KNOWN:
        known = ", ".join((*KNOWN, REPLICA, LM))
        raise ConfigError(f"--sources: unknown {name!r}; known: {known}, or package.module:factory")
    return _opened(name, open_known(name))


def source_names(settings: EvalSettings) -> list[str]:
    """What was asked for, in the order of the cascade."""
    return list(KNOWN) if settings.sources == "all" else list(names(settings.sources))


@asynccontextmanager
async def _opened(name: str, opening: AbstractAsyncContextManager[Build]) -> AsyncGenerator[Source, None]:
    async with opening as build:
        yield Source(name, build)


@asynccontextmanager
async def _ready(source: Source) -> AsyncGenerator[Source, None]:
    yield source


@asynccontextmanager
async def _language_model(settings: EvalSettings, console: Console) -> AsyncGenerator[Source, None]:
    opening = open_language_model(settings.world_model, settings.threads, settings.breadth, console)
    async with opening as world_model:
        yield one_for_all(LM, world_model)


@asynccontextmanager
async def _replica(profile: Profile) -> AsyncGenerator[Build, None]:
    from obsspec.world.replica import Replicas, ReplicaSettings

    def spec_of(environment: Environment) -> SandboxSpec | None:
        return environment.task.spec if isinstance(environment, TaskEnvironment) else None

    yield lambda: Replicas(spec_of, ReplicaSettings(profile=profile))
