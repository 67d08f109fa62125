"""The language model as a source: on real token ids where they were recorded, else on a rendered history."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from obsspec.models.merge import ServedModel, file_model, served_model
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.models.tokenizer import load_vocabulary
from obsspec.policy.llama import open_llama_policy
from obsspec.policy.llama_server import EngineMode, EngineSettings, cores_minus_one
from obsspec.protocols import Emit, WorldModel
from obsspec.render.terminal import TerminalRenderer
from obsspec.values import ConfigError, Context, Observation
from obsspec.world.language import LanguageWorldModel
from obsspec.worldeval.recorded import written

CONTEXT = 4096  # tokens; a longer history is not predicted from


class Rendered:
    """Gives a world model of tokens the prompt that a rollout without recorded tokens would have had."""

    def __init__(self, world_model: WorldModel, renderer: TerminalRenderer) -> None:
        self._world_model = world_model
        self._renderer = renderer

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """Raises what the world model raises. Turns of several calls are shown as one call after the other."""
        await self._world_model.predict(self._with_tokens(context), breadth, emit)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self._world_model.learn(context, observations)

    def _with_tokens(self, context: Context) -> Context:
        if context.prompt:
            return context
        prompt = self._renderer.start("")
        for exchange in context.history:
            for call, observation in zip(exchange.calls, exchange.observations, strict=True):
                prompt = self._renderer.extend(prompt, self._renderer.call(written(call)), (observation,))
        return replace(context, prompt=prompt, completion=self._renderer.call(written(context.calls[0])))


@asynccontextmanager
async def open_language_model(
    what: str, threads: int, breadth: int, console: Console
) -> AsyncGenerator[WorldModel, None]:
    """An engine of its own, in fast mode; it ends with the context. Raises `ConfigError`, `EngineError`."""
    model = _model(what, console)
    settings = EngineSettings(
        mode=EngineMode.FAST, slots=max(2, breadth), context=CONTEXT, threads=threads or cores_minus_one()
    )
    renderer = TerminalRenderer(load_vocabulary(Path(what) if what.endswith(".gguf") else None))
    with tempfile.TemporaryDirectory() as logs:
        async with open_llama_policy(model, settings, Path(logs) / "engine.log") as engine:
            yield Rendered(LanguageWorldModel(engine, renderer, max_context=CONTEXT), renderer)


def _model(what: str, console: Console) -> ServedModel:
    if what == "bundled":
        with console.status("preparing the model (once)"):
            return served_model(shipped_adapter())
    path = Path(what)
    if not path.is_file():
        raise ConfigError(f"no model file {what}: give --world-model 'bundled', an adapter or a GGUF file")
    return served_model(path) if path.suffix == ".safetensors" else file_model(path)
