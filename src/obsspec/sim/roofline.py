"""The roofline of one engine replica: how long a step takes, and how many steps fit into a time.

    step = max(weights + kv C, token (n + p)) + overhead + sequence n

n sequences decode one token each with C tokens of context together; p prompt tokens are prefilled in the same step.
The first argument of the maximum is memory traffic, the second arithmetic. Between two events n is constant and C grows
by n a step, so seconds are a quadratic of steps and back (S. Williams et al., Roofline, CACM 2009).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only model in 16-bit weights: `parameters` that each token reads and multiplies."""

    name: str
    parameters: float
    layers: int
    kv_heads: int
    head_size: int = 128

    @property
    def kv_bytes(self) -> float:
        """Of one token of context: keys and values of all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * 2


@dataclass(frozen=True, slots=True)
class Device:
    """Peak figures of one accelerator: bytes a second, floating-point operations a second, bytes."""

    name: str
    bandwidth: float
    flops: float
    memory: float


H100 = Device("H100", 3.35e12, 989e12, 80e9)
QWEN3 = {
    "0.6B": Model("Qwen3-0.6B", 0.6e9, 28, 8),
    "1.7B": Model("Qwen3-1.7B", 1.7e9, 28, 8),
    "4B": Model("Qwen3-4B", 4.0e9, 36, 8),
    "8B": Model("Qwen3-8B", 8.2e9, 36, 8),
    "32B": Model("Qwen3-32B", 32.8e9, 64, 8),
}


@dataclass(frozen=True, slots=True)
class Serving:
    """How well a serving stack uses its devices. `bandwidth`, `flops`: shares of the peak it reaches; `overhead_s`: of
    every step; `sequence_s`: of every running sequence in every step (scheduling, sampling, detokenization)."""

    bandwidth: float = 0.8
    flops: float = 0.5
    overhead_s: float = 0.001
    sequence_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds: `weights_s` to read the weights, `kv_token_s` to read the cache of one token, `token_s` to compute one
    token, `overhead_s` of each step, `sequence_s` of each running sequence in each step, `prefill_s` of each step with
    prompt tokens in it, beside computing them. None is negative."""

    weights_s: float = 0.0
    kv_token_s: float = 0.0
    token_s: float = 0.0
    overhead_s: float = 0.0
    sequence_s: float = 0.0
    prefill_s: float = 0.0

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ConfigError("the costs of an engine step must not be negative")
        if self.weights_s + self.token_s + self.overhead_s + self.sequence_s <= 0:
            raise ConfigError("an engine step must take some time")

    def step(self, sequences: int, context: float, prefill: int = 0) -> float:
        """Seconds of one step."""
        memory = self.weights_s + self.kv_token_s * context
        rest = self._rest(sequences) + (self.prefill_s if prefill else 0.0)
        return max(memory, self.token_s * (sequences + prefill)) + rest

    def seconds(self, sequences: int, context: float, steps: float) -> float:
        """Of so many decode steps, fractions included; `context` is that at the beginning."""
        rest, compute = self._rest(sequences), self.token_s * sequences
        bound = min(steps, self._compute_bound(sequences, context, compute))
        memory = steps - bound
        grown = context + sequences * bound
        of_memory = (self.weights_s + self.kv_token_s * (grown + sequences * memory / 2)) * memory
        return bound * compute + of_memory + steps * rest

    def steps(self, sequences: int, context: float, seconds: float) -> float:
        """How many decode steps fit: the inverse of `seconds`."""
        rest, compute = self._rest(sequences), self.token_s * sequences
        bound = self._compute_bound(sequences, context, compute)
        if bound * (compute + rest) >= seconds:
            return seconds / (compute + rest)
        left = seconds - bound * (compute + rest)
        a = self.kv_token_s * sequences / 2
        b = self.weights_s + self.kv_token_s * (context + sequences * bound) + rest
        return bound + 2 * left / (b + math.sqrt(b * b + 4 * a * left))

    def _rest(self, sequences: int) -> float:
        return self.overhead_s + self.sequence_s * sequences

    def _compute_bound(self, sequences: int, context: float, compute: float) -> float:
        """For how many steps from now arithmetic takes longer than memory traffic; the context only grows."""
        memory = self.weights_s + self.kv_token_s * context
        if memory >= compute:
            return 0.0
        return (compute - memory) / (self.kv_token_s * sequences) if self.kv_token_s else math.inf


def step_cost(model: Model, device: Device, devices: int, serving: Serving) -> StepCost:
    """Of a replica of `model` sharded over `devices`."""
    bandwidth = device.bandwidth * devices * serving.bandwidth
    flops = device.flops * devices * serving.flops
    return StepCost(
        weights_s=2 * model.parameters / bandwidth,
        kv_token_s=model.kv_bytes / bandwidth,
        token_s=2 * model.parameters / flops,
        overhead_s=serving.overhead_s,
        sequence_s=serving.sequence_s,
    )


def kv_tokens(model: Model, device: Device, devices: int, share: float = 0.9) -> int:
    """Tokens of context that fit beside the weights in `share` of the memory. Raises `ConfigError` if none do."""
    room = share * device.memory * devices - 2 * model.parameters
    if room < model.kv_bytes:
        raise ConfigError(f"{model.name} does not fit on {devices} x {device.name}: give it more devices")
    return int(room / model.kv_bytes)
