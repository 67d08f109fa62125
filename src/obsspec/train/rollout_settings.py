"""What the rollouts of a training run can be asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from obsspec.policy.llama_server import EngineMode
from obsspec.rollout.accounting import Reward, verified
from obsspec.rollout.rules import Limits
from obsspec.sandbox.latency import LatencySpec
from obsspec.train.checks import at_least
from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class Flow:
    """What `AsyncCollector` is asked for beyond the number of rollouts in flight."""

    sandboxes: int | None = None
    max_staleness: int | None = None
    strict_version: bool = False
    retries: int = 0
    reward: Reward = verified


SAME = "same"  # the world model is the policy's engine
SOURCES = ("rules", "memory", "replica", "lm")


FREE = frozenset(("threads", "concurrency"))  # what fits the machine may change from one call to the next


def _help(text: str) -> Parameter:
    return Parameter(help=text)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """How training rollouts are made. None of it but `mode` and the limits has a say in what they are."""

    speculate: Annotated[bool, _help("Use the speculative pipeline; without, the sequential one.")] = True
    sources: Annotated[str, _help("What predicts, comma-separated: rules, memory, replica, lm.")] = ",".join(SOURCES)
    world_model: Annotated[
        str,
        _help(
            "The language world model: 'same' (the policy's engine), an adapter (.safetensors), or a folder of "
            "versions that `train world` publishes, which is followed."
        ),
    ] = SAME
    depth: Annotated[int, _help("D: predicted observations that may stand unverified in a chain.")] = 4
    guarded: Annotated[bool, _help("Send the calls of unverified turns ahead.")] = True
    latency: Annotated[
        str,
        _help(
            "Transport latency of the sandboxes in seconds, as in `obsspec compare`; empty: local sandboxes without."
        ),
    ] = ""
    concurrency: Annotated[int, _help("Rollouts in flight at a time.")] = 8
    mode: Annotated[
        EngineMode, _help("exact: rollouts are those of the sequential pipeline, token for token; fast: not quite.")
    ] = EngineMode.EXACT
    threads: Annotated[int, _help("Threads of all engines together; 0: all cores but one.")] = 0
    max_turns: Annotated[int, _help("Committed turns after which a rollout ends.")] = 10
    max_turn_tokens: Annotated[int, _help("Tokens a turn may sample.")] = 96
    max_context: Annotated[int, _help("Tokens of prompt and turn together.")] = 1024

    def __post_init__(self) -> None:
        wrong = sorted(set(self.source_names) - set(SOURCES))
        if wrong or not self.source_names:
            raise ConfigError(f"--sources: unknown {', '.join(wrong) or '(nothing)'}; known: {', '.join(SOURCES)}")
        at_least(self, concurrency=1, depth=0, threads=0, max_turns=1, max_turn_tokens=1, max_context=1)
        if self.latency:
            LatencySpec.parse(self.latency)

    @property
    def source_names(self) -> tuple[str, ...]:
        """In the order of the cascade."""
        named = {name.strip() for name in self.sources.split(",") if name.strip()}
        return tuple(name for name in SOURCES if name in named) + tuple(sorted(named - set(SOURCES)))

    @property
    def own_engine(self) -> bool:
        """The language world model has an engine beside the policy's."""
        return self.speculate and "lm" in self.source_names and self.world_model != SAME

    @property
    def limits(self) -> Limits:
        return Limits(self.max_turns, self.max_turn_tokens, self.max_context)

    @property
    def slots(self) -> int:
        """For each rollout its generation, and a branch at each depth."""
        return self.concurrency * (1 + (max(1, self.depth) if self.speculate else 0))

    def as_config(self) -> dict[str, Any]:
        return asdict(self)
