"""`rollout_func`: your tasks, your engine, your tool format; the rollouts are TRL's, with observation speculation."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from obsspec.integrations.trl.function import RolloutFunction
from obsspec.integrations.trl.versions import check_trl
from obsspec.models.peft_adapter import from_peft
from obsspec.policy.retry import Retrying
from obsspec.protocols import Renderer
from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.collector import Environment, Job, Speculation
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.session import SpeculationSettings
from obsspec.train.live import LivePolicy, open_live_policy
from obsspec.train.rollouts import Rollouts
from obsspec.train.weights import Serving
from obsspec.values import ConfigError
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.language import LanguageWorldModel
from obsspec.world.memory import Memory, Store
from obsspec.world.rules.model import Rules
from obsspec.world.stages import Price


@dataclass(frozen=True, slots=True)
class _Pipeline:
    environment: Callable[[Any], Environment]
    serving: Serving
    renderer: Renderer
    limits: Limits
    concurrency: int
    seed: int
    speculation: Callable[[LivePolicy], Speculation] | None

    @asynccontextmanager
    async def open(self, adapter: Path, name: str) -> AsyncGenerator[Rollouts, None]:
        async with open_live_policy(self.serving.open(adapter, name)) as live:
            speculate = self.speculation or self._usual
            collector = AsyncCollector(Retrying(live), self.concurrency, speculation=speculate(live))
            yield Rollouts(live, self.serving, collector, self._job)

    def _usual(self, live: LivePolicy) -> Speculation:
        gate = ExpectedValueGate(GateSettings(shared_engine=True), load=lambda: live.busy)
        language = LanguageWorldModel(live, self.renderer, max_context=self.limits.max_context)
        sources = [
            Source("rules", Rules()),
            Source("memory", Memory(Store())),
            Source("lm", language, Price.EXPENSIVE),
        ]
        return Speculation(CascadeModels(sources, gate), SpeculationSettings(), gate)

    def _job(self, prompt: Any, label: str, step: int) -> Job:
        rules = RolloutRules(self.renderer, self.limits, seed=f"{self.seed}/{label}")
        return Job(self.environment(prompt), rules, group=f"{step}/{prompt}", step=step)


def rollout_func(
    environment: Callable[[Any], Environment],
    serving: Serving,
    renderer: Renderer,
    *,
    limits: Limits | None = None,
    concurrency: int = 16,
    seed: int = 0,
    speculation: Callable[[LivePolicy], Speculation] | None = None,
) -> RolloutFunction:
    """What `GRPOTrainer(rollout_func=...)` takes, for a PEFT model in one process; give it `reward` too.

    `environment`: the task of an entry of the dataset's column "prompt". `serving`: the engine; it gets the adapter of
    the trainer at every new step. `renderer`: the tool format. `speculation`: made for the policy; by default rules,
    memory and the policy itself predict, at depth 1. Raises `ConfigError`.
    """
    check_trl()
    run = uuid4().hex[:6]  # a server that outlives this run has never heard of its versions
    numbers = count()  # not the trainer's step, which comes again when it trains again

    def save(trainer: Any, path: Path) -> str:
        if trainer.accelerator.num_processes > 1:
            raise ConfigError("obsspec's rollout function serves one training process: run one")
        model = trainer.accelerator.unwrap_model(trainer.model)
        if not hasattr(model, "peft_config"):
            raise ConfigError("the model has no adapter to hand to the engine: give GRPOTrainer a peft_config")
        with tempfile.TemporaryDirectory(prefix="obsspec-peft-") as folder:
            model.save_pretrained(folder)
            from_peft(Path(folder), path)
        return f"policy-{run}-{next(numbers):06d}"

    pipeline = _Pipeline(environment, serving, renderer, limits or Limits(), concurrency, seed, speculation)
    return RolloutFunction(pipeline.open, save, renderer.stop_token_ids[0])
