"""What a comparison can be asked for; every field is an option of `obsspec compare`."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from cyclopts import Parameter

from obsspec.policy.llama_server import EngineMode
from obsspec.sandbox.profile import parse_profile
from obsspec.tasks.families import FAMILIES
from obsspec.tasks.task import Difficulty
from obsspec.values import ConfigError


class Format(StrEnum):
    TERMINAL = "terminal"
    HERMES = "hermes"


class SandboxKind(StrEnum):
    REMOTE = "remote"
    LOCAL = "local"


SOURCES = ("rules", "tools", "memory", "python", "replica", "shadow", "lm")
DEFAULT_SOURCES = ("rules", "memory", "replica", "lm")


def _help(text: str) -> Parameter:
    return Parameter(help=text)


_PREDICTING = frozenset(
    ("world_model", "world_model_name", "sources", "gate", "depth", "breadth", "guarded", "observation_only")
)
_LEAST = {
    **dict.fromkeys(("tasks", "group", "concurrency", "max_turns", "max_turn_tokens", "max_context"), 1),
    **dict.fromkeys(("depth", "breadth", "threads"), 0),
}


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class CompareSettings:
    tasks: Annotated[int, _help("Number of tasks, each through both arms (one pair a task).")] = 20
    group: Annotated[
        int, _help("Rollouts of each task, with different seeds; the memory learns from one to the next.")
    ] = 1
    families: Annotated[str, _help("Task families, comma-separated; 'all' for every one.")] = "all"
    difficulty: Annotated[Difficulty, _help("Difficulty of the tasks.")] = Difficulty.EASY
    task_seed: Annotated[int, _help("Which tasks of the test split; another seed, other tasks.")] = 0
    seed: Annotated[int, _help("Seed of the sampling: a turn's seed is a function of (this, task, turn).")] = 0
    concurrency: Annotated[int, _help("Rollouts in flight at a time, in each arm.")] = 1
    depth: Annotated[int, _help("D: predicted observations that may stand unverified in a chain.")] = 4
    breadth: Annotated[int, _help("K: distinct candidates drafted for one observation.")] = 1
    guarded: Annotated[
        bool,
        _help(
            "Send the calls of unverified turns ahead: the sandbox runs one only if everything before it was as "
            "predicted, and the loop then finds it running or done. With depth above 1 several are under way at once."
        ),
    ] = True
    observation_only: Annotated[
        bool,
        _help(
            "With --guarded, also run a third arm: observation speculation alone, the same but for calls sent ahead."
        ),
    ] = True
    sandbox: Annotated[
        SandboxKind, _help("remote: a sandbox server over loopback with injected latency; local: in this process.")
    ] = SandboxKind.REMOTE
    latency: Annotated[
        str,
        _help(
            "Transport latency in seconds injected on the wire of the remote sandbox: a constant such as 1.69, "
            "constant:S, uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA. The same draws in both arms."
        ),
    ] = "1.69"
    determinism: Annotated[
        str,
        _help(
            "What the sandboxes make the same each time, in both arms: standard (fixed hash seed and file times), "
            "strict (also the clock of `date` and $RANDOM) or off."
        ),
    ] = "standard"
    sources: Annotated[
        str,
        _help(
            "What predicts, comma-separated, asked in this order: rules, tools (tools that answer like an API), "
            "memory, python (runs the code of Python tools), replica (a local fork of the sandbox), shadow (a sandbox "
            "made of what transcripts show, where there is no replica), lm (the language world model)."
        ),
    ] = ",".join(DEFAULT_SOURCES)
    gate: Annotated[
        bool,
        _help("Weigh what a branch may hide against its cost. Without: always try, unless the world model is down."),
    ] = True
    policy: Annotated[
        str,
        _help(
            "The policy: 'bundled' (SmolLM2-135M with the shipped adapter), another adapter (.safetensors), a GGUF "
            "file, or the URL of a token endpoint (its key, if any, in OBSSPEC_API_KEY), or several URLs of the same "
            "model, comma-separated."
        ),
    ] = "bundled"
    world_model: Annotated[
        str,
        _help(
            "The world model: 'same' (the policy's own engine: shared weights, shared prefix cache), a GGUF file, "
            "or the URL of a token endpoint."
        ),
    ] = "same"
    policy_name: Annotated[str, _help("Name of the policy's model at its URL.")] = ""
    world_model_name: Annotated[str, _help("Name of the world model at its URL.")] = ""
    tokenizer: Annotated[
        str, _help("Tokenizer of a token endpoint's model: 'bundled', a GGUF file or a tokenizer.json.")
    ] = "bundled"
    format: Annotated[
        Format,
        _help("Tool-call format: terminal (what the shipped adapter knows) or hermes (JSON calls, Qwen3 and others)."),
    ] = Format.TERMINAL
    mode: Annotated[
        EngineMode,
        _help(
            "exact: bit-identical results whatever the batch, so 'identical n/n' is demanded; fast: batched prefill."
        ),
    ] = EngineMode.EXACT
    threads: Annotated[
        int, _help("Threads of all embedded engines together, the same in both arms; 0: all cores but one.")
    ] = 0
    temperature: Annotated[float, _help("Sampling temperature of the policy.")] = 1.0
    max_turns: Annotated[int, _help("Committed turns after which a rollout ends.")] = 16
    max_turn_tokens: Annotated[int, _help("Tokens a turn may sample.")] = 160
    max_context: Annotated[int, _help("Tokens of prompt and turn together.")] = 2048

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(self, name)}")
        unknown = sorted(set(self.family_names) - set(FAMILIES))
        if unknown:
            raise ConfigError(f"--families: unknown {', '.join(unknown)}; known: {', '.join(sorted(FAMILIES))}")
        parse_profile(self.determinism)
        wrong = sorted(set(self.source_names) - set(SOURCES))
        if wrong or not self.source_names:
            raise ConfigError(f"--sources: unknown {', '.join(wrong) or '(nothing)'}; known: {', '.join(SOURCES)}")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"--temperature must be a number and not negative, got {self.temperature}")
        for role, option in (("policy", "--policy"), ("world_model", "--world-model")):
            if is_url(getattr(self, role)) and not getattr(self, f"{role}_name"):
                raise ConfigError(f"{option} is a URL: name the model it serves with {option}-name")

    @property
    def family_names(self) -> tuple[str, ...]:
        if self.families == "all":
            return tuple(FAMILIES)
        return tuple(name.strip() for name in self.families.split(","))

    @property
    def source_names(self) -> tuple[str, ...]:
        """In the order of the cascade, whatever the order they were named in."""
        named = {name.strip() for name in self.sources.split(",") if name.strip()}
        return tuple(name for name in SOURCES if name in named) + tuple(sorted(named - set(SOURCES)))

    def as_config(self) -> dict[str, Any]:
        """What a run folder must agree on to be resumed. The number of tasks may grow."""
        return {name: value for name, value in asdict(self).items() if name != "tasks"}

    def acting_config(self) -> dict[str, Any]:
        """The same for a folder of sequential rollouts: nothing that predicts has a say in them."""
        return {name: value for name, value in self.as_config().items() if name not in _PREDICTING}


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))
