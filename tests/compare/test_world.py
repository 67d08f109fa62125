"""The gate of a comparison knows the engine that it guards."""

from __future__ import annotations

import pytest

from obsspec.compare.settings import CompareSettings
from obsspec.compare.world import make_world
from obsspec.speculation.decisions import Start, Why
from obsspec.testing.world_model import ScriptedWorldModel
from obsspec.world.memory import Store


@pytest.mark.parametrize(("busy", "why"), [(0, Why.WORTH), (11, Why.WORTH), (12, Why.FULL), (14, Why.FULL)])
def test_branches_leave_a_slot_to_every_rollout(busy: int, why: Why) -> None:
    settings = CompareSettings(concurrency=2, depth=3, breadth=2)
    load = [0]
    world = make_world(settings, ScriptedWorldModel(lambda context: ()), Store(), lambda: load[0], slots=14)
    start = Start(0, ("bash:ls",), "replica", 0.99)
    world.gate.starts(start)
    load[0] = busy
    assert world.gate.starts(start).why is why


def test_an_engine_that_does_not_say_is_never_full() -> None:
    world = make_world(CompareSettings(), ScriptedWorldModel(lambda context: ()), Store())
    assert all(world.gate.starts(Start(0, ("bash:ls",), "replica", 0.99)).allowed for _ in range(100))
