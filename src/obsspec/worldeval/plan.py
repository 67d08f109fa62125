"""From what was asked for to what is measured."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from rich.console import Console

from obsspec.protocols import WorldModel
from obsspec.world.cascade import Cascade, CascadeSettings
from obsspec.world.stages import Price, Stage
from obsspec.worldeval.bench import Plan
from obsspec.worldeval.known import LM, open_source, source_names
from obsspec.worldeval.recorded import image_of
from obsspec.worldeval.settings import EvalSettings


@asynccontextmanager
async def make_plan(settings: EvalSettings, console: Console) -> AsyncGenerator[Plan, None]:
    """Raises `ConfigError` for a source that is not there."""

    def cascading(stages: Mapping[str, WorldModel]) -> WorldModel:
        priced = [Stage(name, model, _price(name)) for name, model in stages.items()]
        return Cascade(priced, settings=CascadeSettings(min_confidence=settings.min_confidence))

    image = image_of(settings.image_pattern)
    async with AsyncExitStack() as stack:
        sources = [
            await stack.enter_async_context(open_source(name, settings, console)) for name in source_names(settings)
        ]
        yield Plan(
            sources=sources,
            cascading=cascading,
            protocols=settings.wanted_protocols,
            image=image,
            breadth=settings.breadth,
            ablate=settings.ablate,
            test_share=settings.test_share,
            split_seed=settings.split_seed,
            limit=settings.limit,
            timeout_s=settings.timeout,
        )


def _price(name: str) -> Price:
    return Price.EXPENSIVE if name == LM else Price.CHEAP
