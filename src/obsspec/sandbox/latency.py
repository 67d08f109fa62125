"""The transport latency of a sandbox, as a value: what each call waits on the wire beside its own work."""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from obsspec.values import ConfigError

_DEVIATIONS = 8.0  # further from the median no draw is: `_uniform` has 48 bits
REFERENCE = "constant:1.69"  # a remote sandbox of the reference workload


class LatencyKind(StrEnum):
    CONSTANT = "constant"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class LatencySpec:
    """A distribution of seconds: `constant:S`, `uniform:FROM,TO` or `lognormal:MEDIAN,SIGMA` (sigma of the logarithm).

    A draw is a function of (seed, call) alone, so two arms of a paired comparison wait equally long for equal calls.
    """

    kind: LatencyKind
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, text: str) -> LatencySpec:
        """Raises `ConfigError`. A bare number is a constant."""
        name, colon, rest = text.strip().rpartition(":")
        try:
            kind = LatencyKind(name if colon else LatencyKind.CONSTANT)
            numbers = [float(part) for part in rest.split(",")]
            spec = cls(kind, *numbers)
        except (ValueError, TypeError):
            raise ConfigError(_usage(text)) from None
        if len(numbers) != (1 if kind is LatencyKind.CONSTANT else 2) or not spec._is_sound():
            raise ConfigError(_usage(text))
        return spec

    def _is_sound(self) -> bool:
        if not (math.isfinite(self.first) and math.isfinite(self.second) and self.first >= 0 and self.second >= 0):
            return False
        if self.kind is LatencyKind.LOGNORMAL:  # every draw must be a number
            return self.first == 0 or math.log(self.first) + _DEVIATIONS * self.second < math.log(sys.float_info.max)
        return self.kind is not LatencyKind.UNIFORM or self.first <= self.second

    @property
    def mean(self) -> float:
        match self.kind:
            case LatencyKind.CONSTANT:
                return self.first
            case LatencyKind.UNIFORM:
                return (self.first + self.second) / 2
            case LatencyKind.LOGNORMAL:
                return self.first * math.exp(self.second**2 / 2)

    def draw(self, seed: int, call: int) -> float:
        """Seconds for call number `call` of the sandbox with this seed."""
        if self.kind is LatencyKind.CONSTANT:
            return self.first
        share = _uniform(seed, call)
        if self.kind is LatencyKind.UNIFORM:
            return self.first + share * (self.second - self.first)
        if self.first == 0:
            return 0.0
        return math.exp(math.log(self.first) + self.second * NormalDist().inv_cdf(share))

    def __str__(self) -> str:
        numbers = [self.first] if self.kind is LatencyKind.CONSTANT else [self.first, self.second]
        return f"{self.kind}:{','.join(f'{number:g}' for number in numbers)}"


def _uniform(seed: int, call: int) -> float:
    """In (0, 1), never an end."""
    digest = hashlib.sha256(f"latency {seed} {call}".encode()).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


def _usage(text: str) -> str:
    return f"latency {text!r} is not understood: write constant:1.69, uniform:0.5,2 or lognormal:0.29,1.2 (seconds)"
