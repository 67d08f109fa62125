"""The world-model trainer follows what verl's rollouts write, and its versions reach a server."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from obsspec.integrations.verl import transitions
from tests.integrations.verl.test_loop_log import play, turns
from tests.integrations.verl.toy_loop import Toy
from tests.train.test_world_trainer import lines, never
from tests.train.world_process import tiny_world

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_each_round_trains_on_the_new_turns_of_verl_and_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    monkeypatch.setattr(transitions, "worker_name", lambda: "agent_loop_worker_0")
    for number in range(8):
        says = (f"shell:ls {number}", f"shell:cat f{number}\nshell:ls", "done")
        await play(log, Toy(), says, session_id=number)
    trained = tiny_world(log, out)
    trained.run(never, follow=False)
    found = lines(out)
    assert found[-1]["observations"] == sum(len(turn.targets) for turn in turns(log)) == 24
    assert found[-1]["step"] == 5
    assert [line["round"] for line in found] == list(range(1, len(found) + 1))
    assert sorted(int(path.name) for path in (out / "versions").iterdir()) == list(range(len(found) + 1))
