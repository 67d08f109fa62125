"""Opens a cascade for each rollout: some of its sources are shared by all, some live as long as the rollout."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from obsspec.protocols import WorldModel
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.values import EngineError, SandboxError
from obsspec.world.cascade import Cascade, CascadeSettings
from obsspec.world.stages import CascadeMemory, Price, Stage, StageCounts

if TYPE_CHECKING:
    from obsspec.rollout.collector import Environment, WorldModels


@dataclass(frozen=True, slots=True)
class Source:
    """A stage of many rollouts: one model for all of them, or one opened for each.

    `pays`: asked when a rollout starts; False leaves the stage out of that rollout. For a stage that takes something
    from every turn, predicted or not.
    """

    name: str
    models: WorldModels | WorldModel
    price: Price = Price.CHEAP
    pays: Callable[[], bool] | None = None


@dataclass(slots=True)
class CascadeModels:
    """Opens a cascade for each rollout; its stages learn together, in `memory`.

    A source that cannot be opened for a rollout is missing there, and that is counted as an error of it.
    """

    sources: Sequence[Source]
    gate: Gate = field(default_factory=OpenGate)
    settings: CascadeSettings = field(default_factory=CascadeSettings)
    memory: CascadeMemory = field(default_factory=CascadeMemory)

    def statistics(self) -> dict[str, StageCounts]:
        return self.memory.counts

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[Cascade, None]:
        async with AsyncExitStack() as stack:
            stages: list[Stage] = []
            for source in self.sources:
                if source.pays is not None and not source.pays():
                    continue
                try:
                    model = await _open(source.models, environment, seed, stack)
                except (SandboxError, EngineError, OSError):
                    self.memory.of(source.name).errors += 1
                    continue
                stages.append(Stage(source.name, model, source.price))
            yield Cascade(stages, gate=self.gate, settings=self.settings, memory=self.memory)


async def _open(
    models: WorldModels | WorldModel, environment: Environment, seed: str, stack: AsyncExitStack
) -> WorldModel:
    if callable(getattr(models, "open", None)):
        return await stack.enter_async_context(cast("WorldModels", models).open(environment, seed))
    return cast("WorldModel", models)
