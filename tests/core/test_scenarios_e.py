"""Weight versions and sampling parameters: pinned, frozen, never read again."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict

import anyio
import pytest

from obsspec.testing import Move, always
from obsspec.testing.world_model import Plan
from obsspec.values import Sampling
from tests.core.scene import Played, Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio


async def play_with_update(scene: Scene, at_s: float) -> Played:
    """The scene, with new weights at this time."""
    policy = scene.policy = scene.make_policy()
    played: list[Played] = []

    async def run() -> None:
        played.append(await scene.speculative())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.sleep(at_s)
        policy.weight_version = "1"
    return played[0]


# The first turn runs from 0 to 1 s, its tool to 11 s, the prediction to 2 s, the branch to 3 s.
@pytest.mark.parametrize(
    ("at_s", "plan", "versions"),
    [
        (0.5, always(Move.RIGHT), ["0", "1"]),
        (1.5, always(Move.RIGHT), ["0", "1"]),
        (2.5, always(Move.RIGHT), ["0", "0"]),
        (5.0, always(Move.RIGHT), ["0", "0"]),
        (5.0, always(Move.WRONG), ["0", "1"]),
        (11.5, always(Move.WRONG), ["0", "0"]),
    ],
)
async def test_e04_every_turn_carries_the_version_it_was_sent_with(
    at_s: float, plan: Plan, versions: list[str]
) -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), plan=plan)
    played = await play_with_update(scene, at_s)
    assert played.trajectory.versions == versions


async def test_e04_a_branch_on_other_weights_is_refused_when_asked() -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), strict_version=True)
    played = await play_with_update(scene, 5.0)
    assert played.trajectory.versions == ["0", "1"]
    assert played.report.discarded_policy_tokens == len(answer())
    assert len(scene.requests) == 3


async def test_e04_without_an_update_the_strict_option_costs_nothing() -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), strict_version=True)
    _, played = await scene.both()
    assert len(scene.requests) == 2
    assert played.report.discarded_policy_tokens == 0


async def test_e05_sampling_is_frozen_and_the_same_for_all_branches_of_a_turn() -> None:
    scene = Scene(recite(call("ls"), call("ls"), answer()), says("a"), depth=3, breadth=4)
    scene.plan = always(Move.WRONG, Move.NEAR, Move.RIGHT)
    first = scene.rules.first("say hello").key
    assert first is not None
    before = asdict(first.sampling)
    await scene.both()
    assert asdict(first.sampling) == before
    by_turn: dict[int, set[Sampling]] = {}
    for request in scene.requests:
        by_turn.setdefault(request.sampling.seed, set()).add(request.sampling)
    assert all(len(same) == 1 for same in by_turn.values()), "D x K branches, one sampling per turn"
    with pytest.raises(FrozenInstanceError):
        first.sampling.seed = 1  # pyright: ignore
