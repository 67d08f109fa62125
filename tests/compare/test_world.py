"""The gate of a comparison knows the engine that it guards."""

from __future__ import annotations

import pytest

from obsspec.compare.settings import CompareSettings
from obsspec.compare.world import make_world
from obsspec.speculation.decisions import Start, ToolEnded, Why
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.world_model import ScriptedWorldModel
from obsspec.values import Context, Observation, Prediction, ToolCall
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.memory import Store

TASK = ScriptedEnvironment("task", lambda call, log: Observation("x"))


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


def test_a_replica_is_left_out_where_tools_take_no_longer_than_it_does() -> None:
    world = make_world(CompareSettings(), ScriptedWorldModel(lambda context: ()), Store())
    replica = next(source for source in world.models.sources if source.name == "replica")
    assert replica.pays is not None
    assert replica.pays()  # nothing is known yet
    for _ in range(5):
        world.gate.saw(ToolEnded("bash:ls", 0.02))
    assert not replica.pays()
    for _ in range(40):
        world.gate.saw(ToolEnded("bash:ls", 1.7))
    assert replica.pays()


@pytest.mark.anyio
async def test_a_source_that_does_not_pay_is_missing_in_that_rollout() -> None:
    pays = [False]
    source = Source("wm", ScriptedWorldModel(lambda context: (Observation("x"),)), pays=lambda: pays[0])
    models = CascadeModels([source])
    said: list[Prediction] = []
    context = Context((1,), (2,), (ToolCall("bash", {"command": "ls"}),))
    for expected in (0, 1):
        async with models.open(TASK, "seed") as cascade:
            await cascade.predict(context, 1, said.append)
        assert len(said) == expected
        pays[0] = True
