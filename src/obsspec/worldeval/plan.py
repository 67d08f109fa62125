"""From what was asked for to what is measured."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from rich.console import Console

from obsspec.protocols import WorldModel
from obsspec.worldeval.bench import Plan
from obsspec.worldeval.lm import open_language_model
from obsspec.worldeval.recorded import image_of
from obsspec.worldeval.settings import EvalSettings, names
from obsspec.worldeval.sources import KNOWN, LM, Source, find_source, one_for_all
from obsspec.worldeval.stages import FirstConfident


@asynccontextmanager
async def make_plan(settings: EvalSettings, console: Console) -> AsyncGenerator[Plan, None]:
    """Raises `ConfigError` for a source that is not there."""

    def cascading(stages: Mapping[str, WorldModel]) -> WorldModel:
        return FirstConfident(list(stages.values()), settings.min_confidence)

    image = image_of(settings.image_pattern)
    async with AsyncExitStack() as stack:
        sources: list[Source] = []
        for name in list(KNOWN) if settings.sources == "all" else names(settings.sources):
            if name == LM:
                opening = open_language_model(settings.world_model, settings.threads, settings.breadth, console)
                sources.append(one_for_all(LM, await stack.enter_async_context(opening)))
            else:
                sources.append(find_source(name))
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
