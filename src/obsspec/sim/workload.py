"""What simulated rollouts do: how many turns of how many tokens, which commands, and how long their tools take.

Draws are stratified: a workload of n turns takes the n middle quantiles of a distribution in random order. Its means
are those of the distribution, so small workloads speak for large ones, and both arms see the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from obsspec.values import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Command:
    """One class of tool calls: its `share` of all, mean and standard deviation of its latency in seconds, and for which
    part of that the request and the answer are on their way."""

    name: str
    share: float
    tool_s: float
    tool_sd_s: float = 0.0
    on_the_way: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """`calls` a rollout and their standard deviation, cut at 1 and `max_calls`; `tokens` a turn, lognormal with the
    standard deviation `spread` of its logarithm, cut at `max_tokens`."""

    commands: tuple[Command, ...]
    calls: float = 11.24
    calls_sd: float = 7.2
    max_calls: int = 31
    tokens: float = 270.0
    spread: float = 1.0
    max_tokens: int = 2048
    observation_tokens: float = 80.0
    prompt_tokens: int = 600


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """`command` is empty for the last turn, which calls nothing. `record`: its number in a recorded run.

    `way_s`: what of `tool_s` the request and the answer are on their way; during the rest the sandbox is busy.
    """

    tokens: int
    command: str = ""
    tool_s: float = 0.0
    observation_tokens: int = 0
    record: int = -1
    way_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """`turns[rollout][level]`; `pool`: turns that a policy takes where it was led astray."""

    turns: tuple[tuple[PlannedTurn, ...], ...]
    prompt_tokens: int
    pool: tuple[PlannedTurn, ...] = field(default=())

    @property
    def rollouts(self) -> int:
        return len(self.turns)

    @property
    def calls(self) -> int:
        return sum(len(turns) - 1 for turns in self.turns)


def draw_workload(spec: WorkloadSpec, rollouts: int, seed: int) -> Workload:
    """The same arguments give the same workload; another `tokens` alone gives the same with turns scaled."""
    rng = np.random.default_rng(seed)
    calls = _counts(spec, rollouts, rng)
    total = int(calls.sum())
    tokens = _shuffled(token_quantiles(spec, total + rollouts), rng)
    seen = _shuffled(np.maximum(4, _lognormal(spec.observation_tokens, spec.observation_tokens, total)), rng)
    commands = _commands(spec, total, rng)
    turns: list[tuple[PlannedTurn, ...]] = []
    call = turn = 0
    for count in calls:
        planned: list[PlannedTurn] = []
        for _ in range(count):
            command, tool_s = commands[call]
            way_s = tool_s * command.on_the_way
            planned.append(PlannedTurn(int(tokens[turn]), command.name, tool_s, int(seen[call]), way_s=way_s))
            call, turn = call + 1, turn + 1
        planned.append(PlannedTurn(int(tokens[turn])))
        turn += 1
        turns.append(tuple(planned))
    pool = tuple(planned for rollout in turns for planned in rollout[:-1])
    return Workload(tuple(turns), spec.prompt_tokens, pool)


def scaled(spec: WorkloadSpec, tool_s: float) -> WorkloadSpec:
    """The same with another mean tool latency: every command is as much slower."""
    factor = tool_s / mean_tool_s(spec.commands)
    return replace(
        spec,
        commands=tuple(replace(c, tool_s=c.tool_s * factor, tool_sd_s=c.tool_sd_s * factor) for c in spec.commands),
    )


def mean_tool_s(commands: Sequence[Command]) -> float:
    return sum(c.share * c.tool_s for c in commands) / sum(c.share for c in commands)


def token_quantiles(spec: WorkloadSpec, count: int) -> Floats:
    """Lengths of `count` turns in ascending order, whose mean is `spec.tokens` cut as they are."""
    shape = np.exp(spec.spread * _normal(count))
    return _rounded(_clipped(shape, spec.tokens, 8, spec.max_tokens))


def _counts(spec: WorkloadSpec, rollouts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Calls of each rollout: quantiles of a gamma distribution, cut and rounded, with the mean asked for."""
    if spec.calls_sd <= 0:
        return np.full(rollouts, round(spec.calls), dtype=np.int64)
    shape = (spec.calls / spec.calls_sd) ** 2
    sample = np.sort(np.random.default_rng(0).gamma(shape, 1.0, 20_000))
    quantiles = sample[((np.arange(rollouts) + 0.5) / rollouts * len(sample)).astype(np.int64)]
    counts = _rounded(_clipped(quantiles, spec.calls, 1, spec.max_calls))
    return rng.permutation(counts).astype(np.int64)


def _commands(spec: WorkloadSpec, total: int, rng: np.random.Generator) -> list[tuple[Command, float]]:
    whole = sum(command.share for command in spec.commands)
    edges = np.cumsum([command.share / whole * total for command in spec.commands]).round().astype(int)
    calls: list[tuple[Command, float]] = []
    for command, begin, end in zip(spec.commands, [0, *edges[:-1]], edges, strict=True):
        seconds = _shuffled(_lognormal(command.tool_s, command.tool_sd_s, int(end - begin)), rng)
        calls += [(command, float(s)) for s in seconds]
    return [calls[i] for i in rng.permutation(len(calls))]


def _lognormal(mean: float, sd: float, count: int) -> Floats:
    """Quantiles with exactly this mean."""
    if not count:
        return np.zeros(0)
    sigma = math.sqrt(math.log1p((sd / mean) ** 2)) if mean > 0 else 0.0
    values = np.exp(sigma * _normal(count))
    return values * (mean / values.mean())


@lru_cache(maxsize=16)
def _normal(count: int) -> Floats:
    standard = NormalDist()
    return np.array([standard.inv_cdf((i + 0.5) / count) for i in range(count)])


def _rounded(values: Floats) -> Floats:
    """Whole numbers with the same sum, up to one: errors are passed on to the next."""
    return np.diff(np.concatenate([[0.0], np.floor(np.cumsum(values) + 0.5)]))


def _shuffled(values: Floats, rng: np.random.Generator) -> Floats:
    return rng.permutation(values)


def _clipped(shape: Floats, mean: float, least: float, most: float) -> Floats:
    """`shape` times the scale at which its values, cut at `least` and `most`, have this mean. Raises `ConfigError`."""
    if not least <= mean < most:
        raise ConfigError(f"a mean of {mean:g} does not lie between {least:g} and {most:g}")
    low, high = 0.0, 1.0
    while np.clip(shape * high, least, most).mean() < mean and high < 1e9:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(shape * middle, least, most).mean() < mean else (low, middle)
    return np.clip(shape * high, least, most)
