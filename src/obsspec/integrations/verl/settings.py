"""The fields of the agent loop's YAML entry, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class VerlSettings:
    """`speculate` False: exactly verl's tool agent, in the same class, to measure against.

    `depth`, `breadth`, `predict_timeout_s`: as in `SpeculationSettings`. `gate`: weigh what a start gains against what
    it costs; False starts all. `rules`, `memory`: the sources that cost nothing. `memory_path`: an SQLite file on a
    local disk that the workers of a node share; "" keeps what is learnt in each worker.

    `world_model_url`: a vLLM server with a model of the policy's tokenizer; "" is none. It is asked for the newest
    version that `obsspec train publish` loaded there, or for `world_model_name` if there is none.
    `world_model_max_tokens`, `world_model_max_context`: of one prediction, and with its prompt.

    `guarded`: send predicted calls ahead, where the one tool is `obsspec.integrations.verl.tool.SandboxTool`.

    `transitions`: the folder of a transition log that training rollouts are written to, also the sequential ones; ""
    is none.
    """

    speculate: bool = True
    depth: int = 1
    breadth: int = 1
    predict_timeout_s: float = 30.0
    gate: bool = True
    rules: bool = True
    memory: bool = True
    memory_path: str = ""
    world_model_url: str = ""
    world_model_name: str = ""
    world_model_max_tokens: int = 128
    world_model_max_context: int = 18432
    guarded: bool = False
    transitions: str = ""

    def __post_init__(self) -> None:
        for name in ("depth", "breadth", "predict_timeout_s", "world_model_max_tokens", "world_model_max_context"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"agent loop field {name}: must be above 0, got {getattr(self, name)}")
        if self.world_model_url and not self.world_model_url.startswith(("http://", "https://")):
            raise ConfigError(f"agent loop field world_model_url: {self.world_model_url!r} must begin with http://")
        if bool(self.world_model_url) != bool(self.world_model_name):
            raise ConfigError("agent loop fields world_model_url and world_model_name: give both or neither")
        for name in ("memory_path", "transitions"):
            if (path := getattr(self, name)) and not Path(path).is_absolute():
                raise ConfigError(f"agent loop field {name}: {path!r} must be an absolute path")
        if self.memory_path and not self.memory:
            raise ConfigError("agent loop field memory_path: needs memory: true")
        if self.speculate and not (self.rules or self.memory or self.world_model_url):
            raise ConfigError("agent loop fields: nothing would predict; set rules, memory or world_model_url")

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> VerlSettings:
        """Raises `ConfigError` for a field that does not exist or has another type."""
        known: dict[str, type[Any]] = {each.name: type(each.default) for each in fields(cls)}
        for name, value in given.items():
            if name not in known:
                raise ConfigError(f"agent loop field {name}: unknown; the fields are {', '.join(sorted(known))}")
            if not _is(value, known[name]):
                raise ConfigError(f"agent loop field {name}: must be a {known[name].__name__}, got {value!r}")
        return cls(**given)


def _is(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is wanted
