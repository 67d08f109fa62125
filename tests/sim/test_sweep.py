"""From one recorded run to other depths, breadths and tools: what scripted parts take, in virtual time, is foreseen.

The measured side shares nothing with the simulator but the session: its engine, sandbox and world model are fakes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from zlib import crc32

import pytest

from obsspec.protocols import Sandbox
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation, Verdict
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.rollout.trajectory import Trajectory
from obsspec.sim.plan import Plan, PlanSettings
from obsspec.sim.recorded import RecordedRun, read_run
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.contention import ContendedPolicy
from obsspec.testing.delays import constant
from obsspec.testing.sandbox import ScriptedSandbox, oracle
from obsspec.testing.scripts import TerminalScript
from obsspec.testing.shell import toy_shell
from obsspec.testing.virtual_clock import Backend, run_virtual
from obsspec.testing.vocabulary import toy_vocabulary
from obsspec.testing.world_model import Forecast, Move, ScriptedWorldModel
from obsspec.values import Context
from tests.compare.conftest import RENDERER

ROLLOUTS, CONCURRENCY = 24, 2
RUN_S = 0.02  # of a command in the sandbox
WAY_S = 1.69
SETTINGS = SpeculationSettings(4, 2, guarded=True)  # of the recorded run
BOUND = 0.06


@dataclass(frozen=True, slots=True)
class Far:
    """A toy shell at the end of a wire."""

    task_id: str
    way_s: float
    instruction: str = "hello"
    image: str = "scripted"

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox, None]:
        yield ScriptedSandbox(toy_shell, delay_s=lambda call: RUN_S, way_s=lambda number: self.way_s / 2)

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0)


def luck(context: Context, breadth: int) -> Forecast:
    """The same for the same turn, whatever the settings: right, right at the second try, or wrong."""
    share = crc32(repr((context.task_id, len(context.history), context.calls[0].command)).encode()) / 2**32
    return Forecast((Move.RIGHT,) if share < 0.75 else (Move.WRONG, Move.RIGHT) if share < 0.85 else (Move.WRONG,))


def make(way_s: float, settings: SpeculationSettings | None) -> list[RolloutResult]:
    script = TerminalScript(toy_vocabulary(), RENDERER, final=0.12, malformed=0.0, cut=0.0, empty=0.0)
    policy = ContendedPolicy(script, capacity=1.3, token_s=0.15)
    speculation = None
    if settings is not None:
        model = ScriptedWorldModel(oracle(toy_shell), luck, delay_s=constant(0.03))
        gate = ExpectedValueGate(load=lambda: policy.in_flight)
        speculation = Speculation(Shared(model), settings, gate)
    limits = Limits(max_turns=12, max_turn_tokens=64, max_context=4096)
    jobs = [Job(Far(str(n), way_s), RolloutRules(RENDERER, limits, seed=str(n))) for n in range(ROLLOUTS)]
    return run_virtual(Collector(policy, CONCURRENCY, speculation).run, jobs, backend=Backend.ASYNCIO)


def agent_s(results: list[RolloutResult]) -> float:
    return sum(result.trajectory.agent_s for result in results) / len(results)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    config = {"concurrency": CONCURRENCY, "depth": 4, "breadth": 2, "guarded": True, "gate": True}
    folder = RunFolder(tmp_path_factory.mktemp("sweep") / "run", {**config, "latency": str(WAY_S)})
    for arm, settings in (("sequential", None), ("speculative", SETTINGS)):
        for result in make(WAY_S, settings):
            folder.append(arm, result)
    return read_run(folder.path)


@pytest.mark.parametrize("way_s", [0.1, 0.5, WAY_S])
@pytest.mark.parametrize(("depth", "breadth"), [(0, 1), (1, 1), (2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("guarded", [False, True])
def test_h01_other_settings_are_foreseen(
    run: RecordedRun, depth: int, breadth: int, guarded: bool, way_s: float
) -> None:
    moved = tuple(
        tuple(replace(t, tool_s=t.tool_s - t.way_s + way_s, way_s=way_s) if t.command else t for t in turns)
        for turns in run.rollouts
    )
    plan = Plan(replace(run, rollouts=moved), PlanSettings(rollouts=ROLLOUTS))
    if not depth:
        assert plan.sequential().agent_s == pytest.approx(agent_s(make(way_s, None)), rel=BOUND)
        return
    measured = agent_s(make(way_s, SpeculationSettings(depth, breadth, guarded=guarded)))
    assert plan.line(run.sources, depth, breadth, guarded=guarded).figures.agent_s == pytest.approx(measured, rel=BOUND)
