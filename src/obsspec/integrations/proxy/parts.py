"""What all conversations share: the engine, the gate, the limits and the figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from anyio.abc import TaskGroup

from obsspec.integrations.proxy.figures import Figures
from obsspec.integrations.proxy.settings import ServeSettings
from obsspec.integrations.proxy.upstream import Upstream
from obsspec.integrations.proxy.wire import canonical
from obsspec.speculation.decisions import Ask, Decision, Look, Seen, Start, Why
from obsspec.speculation.gate import Fuse, Gate
from obsspec.values import GenerationKey

_SPECULATIVE = 1  # vLLM serves the lower number first


@dataclass(slots=True)
class Limits:
    """What is in use, and whether anything may still start early. `fuse`: an engine that refuses, or fails at, early
    requests in a row is left alone for a while; most often it is too busy."""

    max_branches: int
    max_held: int
    max_lag_s: float
    branches: int = 0  # requests that nobody has asked for
    held: int = 0  # bytes of answers that nobody has asked for
    lag_s: float = 0.0  # how late the event loop is, on average: it has more to do than it can
    draining: bool = False
    fuse: Fuse = field(default_factory=Fuse)

    def are_reached(self, frees: int = 0) -> bool:
        """`frees`: branches that are going to be dropped."""
        many = self.branches - frees >= self.max_branches
        return self.is_late or self.draining or many or self.held > self.max_held

    @property
    def is_late(self) -> bool:
        return self.lag_s > self.max_lag_s


@dataclass(frozen=True, slots=True)
class ProxyGate:
    """Another gate, within the limits. `shadow`: nothing starts, and the decision says `why` it would have."""

    inner: Gate
    limits: Limits
    shadow: bool

    def predicts(self, look: Look) -> Decision:
        decision = self.inner.predicts(look)
        return replace(decision, allowed=False, why=Why.FULL) if self.limits.is_late else decision

    def starts(self, start: Start) -> Decision:
        decision = self.inner.starts(start)
        if not decision.allowed:
            return decision
        if self.limits.are_reached(start.frees):
            return replace(decision, allowed=False, why=Why.FULL)
        if not self.limits.fuse.allows():
            return replace(decision, allowed=False, why=Why.BROKEN)
        return replace(decision, allowed=not self.shadow)

    def asks(self, ask: Ask) -> Decision:
        return self.inner.asks(ask)

    def saw(self, seen: Seen) -> None:
        self.inner.saw(seen)


@dataclass(frozen=True, slots=True)
class Parts:
    settings: ServeSettings
    upstream: Upstream
    tasks: TaskGroup
    gate: Gate
    limits: Limits
    figures: Figures = field(default_factory=Figures)

    def as_sent(self, key: GenerationKey) -> GenerationKey:
        """The key of a request as it is sent when nobody has asked for it yet: behind all others, if the engine can."""
        if not self.settings.priorities:
            return key
        fields, _, said = key.sampling.model.partition("\n")
        found = json.loads(fields)
        found["priority"] = (found.get("priority") or 0) + _SPECULATIVE
        return replace(key, sampling=replace(key.sampling, model=f"{canonical(found)}\n{said}"))
