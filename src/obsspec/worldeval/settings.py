"""What an evaluation can be asked for; every field is an option of `obsspec world eval`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from obsspec.values import ConfigError
from obsspec.worldeval.schedule import Protocol


def _help(text: str) -> Parameter:
    return Parameter(help=text)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class EvalSettings:
    sources: Annotated[
        str,
        _help(
            "Comma-separated, cheapest first: rules, tools, memory, python, shadow, replica (run folders only), lm, or "
            "package.module:factory; 'all' for every one that needs no engine and no task of ours."
        ),
    ] = "all"
    protocols: Annotated[str, _help("Comma-separated: cold, group, epochs.")] = "cold,group,epochs"
    breadth: Annotated[int, _help("K: candidates asked of each source; exact is the first, top-K any of them.")] = 1
    min_confidence: Annotated[
        float, _help("Less likely candidates the cascade does not give. (In a run the gate weighs those from 0.15 on.)")
    ] = 0.75
    ablate: Annotated[bool, _help("Also measure the cascade without each of its sources.")] = False
    image_pattern: Annotated[
        str, _help("Regular expression for the part of a task id that names its image; else each task has its own.")
    ] = ""
    arm: Annotated[str, _help("Which rollouts of a run folder: sequential or speculative.")] = "sequential"
    test_share: Annotated[float, _help("Report on this share of the tasks only; learn from the others first.")] = 1.0
    split_seed: Annotated[int, _help("Which tasks those are.")] = 0
    tool_seconds: Annotated[
        float | None,
        _help("Seconds that each call without a real duration counts; default: those of its replay, else 1.69."),
    ] = None
    limit: Annotated[int, _help("Use only so many rollouts of each data set, the first ones; 0: all.")] = 0
    timeout: Annotated[float, _help("Seconds after which a prediction is given up.")] = 30.0
    world_model: Annotated[str, _help("The source lm: 'bundled', an adapter or a GGUF file.")] = "bundled"
    determinism: Annotated[str, _help("The source replica: the determinism profile that the run had.")] = "standard"
    threads: Annotated[int, _help("Threads of the source lm; 0: all cores but one.")] = 0

    def __post_init__(self) -> None:
        for name in ("breadth",):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.test_share <= 1:
            raise ConfigError(f"--test-share must be above 0 and at most 1, got {self.test_share}")
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"--min-confidence must be between 0 and 1, got {self.min_confidence}")
        for name, value in (("timeout", self.timeout), ("tool-seconds", self.tool_seconds)):
            if value is not None and not value > 0:
                raise ConfigError(f"--{name} must be above 0, got {value}")
        for name in ("limit", "threads"):
            if getattr(self, name) < 0:
                raise ConfigError(f"--{name} must not be negative, got {getattr(self, name)}")
        unknown = sorted(set(names(self.protocols)) - set(Protocol))
        if unknown or not names(self.protocols):
            raise ConfigError(f"--protocols: unknown {', '.join(unknown) or 'nothing'}; known: {', '.join(Protocol)}")

    @property
    def wanted_protocols(self) -> list[Protocol]:
        return [protocol for protocol in Protocol if protocol in names(self.protocols)]


def names(text: str) -> Sequence[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
