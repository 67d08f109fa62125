"""The world model of a comparison: the cascade of the sources that were asked for, and the gate that weighs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from obsspec.compare.remembered import SPLIT
from obsspec.compare.settings import CompareSettings
from obsspec.protocols import WorldModel
from obsspec.rollout.collector import Environment, Speculation, WorldModels
from obsspec.sandbox.profile import parse_profile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import Breaker, Gate
from obsspec.speculation.session import SpeculationSettings
from obsspec.tasks.environment import TaskEnvironment
from obsspec.values import ConfigError
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.known import open_known
from obsspec.world.memory import Memory, Store
from obsspec.world.replica import Replicas, ReplicaSettings
from obsspec.world.rules.model import Rules
from obsspec.world.rules.starts import StartingRules
from obsspec.world.stages import Price

STARTED = ("tools", "python", "shadow")
QUICK_TOOL_S = 0.1  # tools that take less are not worth running a second time beside them


@dataclass(frozen=True, slots=True)
class World:
    """What a speculating arm has beside the parts that all arms share."""

    speculation: Speculation
    gate: Gate
    models: CascadeModels
    store: Store  # what the memory knows: nothing of the sequential arm


def make_world(
    settings: CompareSettings,
    language: WorldModel,
    store: Store,
    load: Callable[[], int] | None = None,
    slots: int = 0,
    opened: Mapping[str, WorldModel | WorldModels] = MappingProxyType({}),
) -> World:
    """A speculating arm's parts. `load`: requests in flight at the policy's engine, which has so many `slots`;
    `opened`: the sources of `open_sources`."""
    gate = _weighing(settings, load, slots) if settings.gate else Breaker()
    sources = [
        Source(name, opened[name]) if name in opened else _source(name, settings, language, store, gate)
        for name in settings.source_names
    ]
    models = CascadeModels(sources, gate)
    depths = SpeculationSettings(depth=settings.depth, breadth=settings.breadth, guarded=settings.guarded)
    return World(Speculation(models, depths, gate), gate, models, store)


@asynccontextmanager
async def open_sources(settings: CompareSettings) -> AsyncGenerator[Mapping[str, WorldModel | WorldModels], None]:
    """Those of the sources that have to be started, new models of them. Raises `ConfigError`."""
    async with AsyncExitStack() as stack:
        wanted = [name for name in settings.source_names if name in STARTED]
        yield {name: (await stack.enter_async_context(open_known(name)))() for name in wanted}


def _weighing(settings: CompareSettings, load: Callable[[], int] | None, slots: int) -> ExpectedValueGate:
    """A tree of branches may grow beyond any number of slots; one for each rollout stays free of them."""
    spare = max(0, slots - settings.concurrency)
    weighed = GateSettings(slots=spare, shared_engine=settings.world_model == "same", guarded=settings.guarded)
    return ExpectedValueGate(weighed, load=load)


def _source(name: str, settings: CompareSettings, language: WorldModel, store: Store, gate: Gate) -> Source:
    match name:
        case "rules":
            return Source(name, StartingRules(Rules(), _spec_of))
        case "memory":
            return Source(name, Memory(store, split=SPLIT))
        case "replica":
            replicas = Replicas(_spec_of, ReplicaSettings(profile=parse_profile(settings.determinism)))
            pays = partial(gate.tools_take, QUICK_TOOL_S) if isinstance(gate, ExpectedValueGate) else None
            return Source(name, replicas, pays=pays)
        case "lm":
            return Source(name, language, Price.EXPENSIVE)
        case _:
            raise ConfigError(f"--sources: unknown {name!r}")


def _spec_of(environment: Environment) -> SandboxSpec | None:
    return environment.task.spec if isinstance(environment, TaskEnvironment) else None
