"""Pairs of scripted rollouts, made in virtual time, to compute figures from."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from obsspec.compare.summary import Pair
from obsspec.protocols import Sandbox
from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation, Verdict
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.delays import constant
from obsspec.testing.policy import ScriptedPolicy
from obsspec.testing.sandbox import ScriptedSandbox, oracle
from obsspec.testing.scripts import recite
from obsspec.testing.shell import toy_shell
from obsspec.testing.virtual_clock import run_virtual
from obsspec.testing.vocabulary import toy_vocabulary
from obsspec.testing.world_model import Move, ScriptedWorldModel, always

RENDERER = TerminalRenderer(toy_vocabulary())
TURNS = [RENDERER.call("mkdir d"), RENDERER.call("pwd"), RENDERER.call("ls"), RENDERER.answer("done")]
TOOL_S = 2.0


@dataclass(frozen=True, slots=True)
class ScriptedEnvironment:
    task_id: str
    instruction: str = "hello"
    image: str = "scripted"

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox, None]:
        yield ScriptedSandbox(toy_shell, delay_s=lambda call: TOOL_S)

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0)


def job(task_id: str) -> Job:
    rules = RolloutRules(RENDERER, Limits(max_turns=8, max_turn_tokens=64, max_context=4096), seed=task_id)
    return Job(ScriptedEnvironment(task_id), rules, group=task_id)


def rollouts(move: Move | None, count: int = 3, settings: SpeculationSettings | None = None) -> list[RolloutResult]:
    """`count` rollouts of three tool calls: sequential without a move, else with a world model that makes it."""
    policy = ScriptedPolicy(recite(*TURNS), token_s=constant(0.1))
    speculation = None
    if move is not None:
        world_model = ScriptedWorldModel(oracle(toy_shell), always(move), delay_s=constant(0.25))
        speculation = Speculation(Shared(world_model), settings or SpeculationSettings())
    return run_virtual(Collector(policy, 1, speculation).run, [job(f"task-{i}") for i in range(count)])


@pytest.fixture
def pairs() -> list[Pair]:
    return [Pair(a, b) for a, b in zip(rollouts(None), rollouts(Move.RIGHT), strict=True)]
