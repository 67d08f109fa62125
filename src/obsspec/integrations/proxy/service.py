"""The parts of a running proxy, from its settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from obsspec.integrations.proxy.asked import SESSION_HEADERS, UNSAID, Asked, Route
from obsspec.integrations.proxy.chat import ChatTurns
from obsspec.integrations.proxy.conversation import Conversation
from obsspec.integrations.proxy.figures import Figures
from obsspec.integrations.proxy.habits import Habits
from obsspec.integrations.proxy.ids import IdFrames, IdTurns
from obsspec.integrations.proxy.language import TextEngine, TextWorldModel
from obsspec.integrations.proxy.metrics import Metrics
from obsspec.integrations.proxy.parts import Limits, Parts, ProxyGate
from obsspec.integrations.proxy.settings import ServeSettings
from obsspec.integrations.proxy.table import Conversations
from obsspec.integrations.proxy.upstream import Upstream
from obsspec.integrations.proxy.world import Worlds, image_of
from obsspec.models.tokenizer_file import FileVocabulary
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import Breaker, Gate

_SWEEP_S = 5.0
_LOOK_S, _SMOOTH = 0.05, 0.2


@dataclass(frozen=True, slots=True)
class Service:
    parts: Parts
    conversations: Conversations
    metrics: Metrics
    session_headers: frozenset[bytes]
    unsaid: frozenset[bytes]

    def drain(self) -> None:
        """Nothing starts early any more, and what did is cancelled. Answers that clients wait for go on."""
        self.parts.limits.draining = True
        self.conversations.forget_silent()


@asynccontextmanager
async def open_service(settings: ServeSettings) -> AsyncGenerator[Service, None]:
    """Raises `ConfigError`. When the context is left, in whatever way, no request to the engine is open any more."""
    settings.check()
    frames = IdFrames(FileVocabulary(settings.tokenizer)) if settings.tokenizer is not None else None
    upstream = Upstream(settings.upstream)
    engine = TextEngine(settings.world_model, settings.world_model_name) if settings.world_model else None
    try:
        async with anyio.create_task_group() as tasks:
            service = _service(settings, upstream, tasks, frames, engine)
            tasks.start_soon(_sweep, service.conversations, settings.idle_s)
            tasks.start_soon(_watch, service.parts.limits)
            try:
                yield service
            finally:
                service.conversations.close()
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await upstream.aclose()
            if engine is not None:
                await engine.aclose()


def _service(
    settings: ServeSettings, upstream: Upstream, tasks: TaskGroup, frames: IdFrames | None, engine: TextEngine | None
) -> Service:
    figures = Figures(shadow=settings.shadow)
    limits = Limits(settings.max_branches, settings.buffer_mib << 20, settings.max_lag_s)
    gate = ProxyGate(_gate(settings, upstream), limits, settings.shadow)
    parts = Parts(settings, upstream, tasks, gate, limits, figures)
    worlds = Worlds(gate)

    def open_(asked: Asked) -> Conversation:
        world = worlds.of(asked)
        client, language = world.client(asked.client), None
        if asked.route is Route.CHAT:
            turns = ChatTurns(Habits(), client.habits, client.fields.own())
            language = TextWorldModel(engine, turns) if engine is not None else None
        else:
            turns = IdTurns(asked.route, frames, client.fields.own())
        return Conversation(parts, turns, world.cascade(language), asked.route, image_of(asked))

    conversations = Conversations(open_, figures, settings.max_sessions, settings.sessions_mib << 20, settings.idle_s)
    gauges = {
        "sessions": ("Conversations that are remembered", lambda: len(conversations)),
        "session_bytes": ("Bytes of what is remembered of them", lambda: conversations.size),
        "branches": ("Requests started early that nobody has asked for yet", lambda: limits.branches),
        "held_bytes": ("Bytes of their answers", lambda: limits.held),
        "lag_seconds": ("How late the proxy itself is", lambda: limits.lag_s),
        "upstream_requests": ("Requests that the engine is answering", lambda: upstream.open),
    }
    named = {settings.session_header.lower().encode()} - {b""}
    ignored = {name.lower().encode() for name in settings.ignore_header}
    return Service(
        parts, conversations, Metrics(figures, gauges), frozenset(named.union(SESSION_HEADERS)), UNSAID | ignored
    )


async def _watch(limits: Limits) -> None:
    while True:
        due_s = anyio.current_time() + _LOOK_S
        await anyio.sleep(_LOOK_S)
        limits.lag_s += _SMOOTH * (anyio.current_time() - due_s - limits.lag_s)


def _gate(settings: ServeSettings, upstream: Upstream) -> Gate:
    if not settings.gate:
        return Breaker()
    return ExpectedValueGate(GateSettings(shared_engine=not settings.world_model), load=lambda: upstream.open)


async def _sweep(conversations: Conversations, idle_s: float) -> None:
    while True:
        await anyio.sleep(min(_SWEEP_S, idle_s / 4))
        conversations.forget_idle(anyio.current_time())
