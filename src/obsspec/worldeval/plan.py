"""From what was asked for to what is measured."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from rich.console import Console

from obsspec.protocols import WorldModel
from obsspec.worldeval.recorded import image_of
from obsspec.worldeval.run import Plan
from obsspec.worldeval.settings import EvalSettings, names
from obsspec.worldeval.sources import KNOWN, Source, find_source
from obsspec.worldeval.stages import FirstConfident


@asynccontextmanager
async def make_plan(settings: EvalSettings, console: Console) -> AsyncGenerator[Plan, None]:
    """Raises `ConfigError` for a source that is not there."""

    def cascading(stages: Mapping[str, WorldModel]) -> WorldModel:
        return FirstConfident(list(stages.values()), settings.min_confidence)

    wanted = list(KNOWN) if settings.sources == "all" else names(settings.sources)
    sources: list[Source] = [find_source(name) for name in wanted]
    yield Plan(
        sources=sources,
        cascading=cascading,
        protocols=settings.wanted_protocols,
        image=image_of(settings.image_pattern),
        breadth=settings.breadth,
        ablate=settings.ablate,
        test_share=settings.test_share,
        split_seed=settings.split_seed,
        limit=settings.limit,
        timeout_s=settings.timeout,
    )
