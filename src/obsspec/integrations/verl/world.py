"""What the rollouts of one agent-loop worker share: the sources of predictions, what is learnt of them, the gate."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from obsspec.integrations.verl.settings import VerlSettings
from obsspec.protocols import Policy, Renderer, WorldModel
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import Breaker, Gate
from obsspec.train.newest import NewestVersion
from obsspec.world.cascade import Cascade
from obsspec.world.language import LanguageWorldModel
from obsspec.world.memory import Memory, Store
from obsspec.world.memory.digests import digest
from obsspec.world.rules.model import Rules
from obsspec.world.stages import CascadeMemory, Price, Stage


@dataclass(slots=True)
class Shared:
    """For all rollouts on one event loop with the same settings."""

    settings: VerlSettings
    gate: Gate
    stages: list[Stage]
    engine: Policy | None
    memory: CascadeMemory = field(default_factory=CascadeMemory)

    def world_model(self, renderer: Renderer) -> WorldModel:
        """That of one rollout. `renderer`: where in its prompts answers go."""
        settings, stages = self.settings, list(self.stages)
        if self.engine is not None:
            language = LanguageWorldModel(
                self.engine,
                renderer,
                max_tokens=settings.world_model_max_tokens,
                max_context=settings.world_model_max_context,
            )
            stages.append(Stage("lm", language, Price.EXPENSIVE))
        return Cascade(stages, gate=self.gate, memory=self.memory)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[VerlSettings, Shared]] = WeakKeyDictionary()


def shared(settings: VerlSettings) -> Shared:
    """Made at the first call on the running event loop. Raises `ConfigError` if the memory file can not be used."""
    known = _shared.setdefault(asyncio.get_running_loop(), {})
    if settings not in known:
        known[settings] = _open(settings)
    return known[settings]


def _open(settings: VerlSettings) -> Shared:
    stages: list[Stage] = []
    if settings.rules:
        stages.append(Stage("rules", Rules()))
    if settings.memory:
        store = Store(Path(settings.memory_path) if settings.memory_path else None)
        stages.append(Stage("memory", Memory(store, split="verl")))
    engine = None
    if settings.world_model_url:
        key = os.environ.get("OBSSPEC_API_KEY", "")
        engine = NewestVersion(settings.world_model_url, settings.world_model_name, api_key=key)
    gate = (
        ExpectedValueGate(GateSettings(shared_engine=False, guarded=settings.guarded)) if settings.gate else Breaker()
    )
    return Shared(settings, gate, stages, engine)


def task_of(sample: Mapping[str, Any]) -> str:
    """What the rollouts of one prompt have in common, in every epoch: its messages and what its tools are made with."""
    said = (sample.get("raw_prompt"), sample.get("tools_kwargs"))
    return digest("verl", json.dumps(said, sort_keys=True, default=str)).hex()
