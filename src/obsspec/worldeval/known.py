"""The sources of this package by name. What takes long to start is started once; what was learnt is always new."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from rich.console import Console

from obsspec.protocols import WorldModel
from obsspec.rollout.collector import Environment
from obsspec.sandbox.profile import Profile, parse_profile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.tasks.environment import TaskEnvironment
from obsspec.values import ConfigError
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
    if name not in _OPENERS:
        known = ", ".join((*_OPENERS, REPLICA, LM))
        raise ConfigError(f"--sources: unknown {name!r}; known: {known}, or package.module:factory")
    return _opened(name, _OPENERS[name]())


def source_names(settings: EvalSettings) -> list[str]:
    """What was asked for, in the order of the cascade."""
    return list(CHEAP) if settings.sources == "all" else list(names(settings.sources))


@asynccontextmanager
async def _opened(name: str, opening: AbstractAsyncContextManager[Build]) -> AsyncGenerator[Source, None]:
    async with AsyncExitStack() as stack:
        try:
            build = await stack.enter_async_context(opening)
        except ModuleNotFoundError as error:
            raise ConfigError(f"--sources {name}: no module {error.name}; install it or leave the source out") from None
        yield Source(name, build)


@asynccontextmanager
async def _ready(source: Source) -> AsyncGenerator[Source, None]:
    yield source


@asynccontextmanager
async def _language_model(settings: EvalSettings, console: Console) -> AsyncGenerator[Source, None]:
    opening = open_language_model(settings.world_model, settings.threads, settings.breadth, console)
    async with opening as world_model:
        yield one_for_all(LM, world_model)


# Each is imported when it is asked for: the others need not be able to start on this machine.


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


@asynccontextmanager
async def _replica(profile: Profile) -> AsyncGenerator[Build, None]:
    from obsspec.world.replica import Replicas, ReplicaSettings

    def spec_of(environment: Environment) -> SandboxSpec | None:
        return environment.task.spec if isinstance(environment, TaskEnvironment) else None

    yield lambda: Replicas(spec_of, ReplicaSettings(profile=profile))


_OPENERS: dict[str, Callable[[], AbstractAsyncContextManager[Build]]] = {
    "rules": _rules,
    "memory": _memory,
    "tools": _tools,
    "python": _python,
    "shadow": _shadow,
}
CHEAP = tuple(_OPENERS)  # cheapest first; they need no engine and no sandbox of the task
