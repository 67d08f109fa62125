"""Context limits: computed from the prefix that the loop sees."""

from __future__ import annotations

import pytest

from obsspec.rollout.rules import Limits
from obsspec.testing import ScriptedWorldModel, always, toy_renderer
from obsspec.testing.world_model import Move
from obsspec.values import Context, Observation, Outcome, StopReason
from tests.core.scene import Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio


def scene_with(predicted: str, real: str, spare: int) -> Scene:
    """A context that holds the first turn, and an observation of 20 characters with `spare` tokens to spare."""

    def oracle(context: Context) -> tuple[Observation, ...]:
        return (Observation(predicted),)

    scene = Scene(
        recite(call("ls"), answer("abc")), says(real), world_model=ScriptedWorldModel(oracle, always(Move.RIGHT))
    )
    frame = toy_renderer().extend((), (), [Observation("x" * 20)])
    prompt = scene.rules.first("say hello").prompt
    scene.limits = Limits(8, 200, len(prompt) + len(call("ls")) + len(frame) + spare)
    return scene


async def test_f01a_a_predicted_overflow_drops_the_branch_and_the_rollout_goes_on() -> None:
    scene = scene_with("x" * 500, "x" * 20, spare=20)
    _, played = await scene.both()
    assert played.trajectory.stop is StopReason.FINAL
    assert played.outcomes == [Outcome.ROLLBACK]
    assert len(scene.requests) == 2, "no branch was started"
    assert played.report.attempts[0].branches == 0


async def test_f01b_a_real_overflow_ends_both_pipelines_the_same_way() -> None:
    scene = scene_with("x" * 20, "x" * 500, spare=20)
    _, played = await scene.both()
    assert played.trajectory.stop is StopReason.CONTEXT_LIMIT
    assert played.outcomes == [Outcome.ROLLBACK]
    assert played.report.discarded_policy_tokens == len(answer("abc"))
    assert len(played.trajectory.ids) <= scene.limits.max_context


@pytest.mark.parametrize("spare", range(-2, 7))
@pytest.mark.parametrize("predicted", ["x" * 19, "x" * 20, "x" * 21])
async def test_f01c_max_tokens_is_clamped_to_the_same_rest_in_both(predicted: str, spare: int) -> None:
    scene = scene_with(predicted, "x" * 20, spare)
    sequential = await scene.sequential()
    asked = [(request.prompt, request.sampling) for request in scene.requests]
    _, played = await scene.both()
    kept = [(r.prompt, r.sampling) for r in scene.requests if r.prompt in {prompt for prompt, _ in asked}]
    assert kept == asked
    assert all(len(prompt) + sampling.max_tokens <= scene.limits.max_context for prompt, sampling in asked[1:])
    assert sequential.trajectory.stop is played.trajectory.stop
    expected = StopReason.CONTEXT_LIMIT if spare < 1 else StopReason.CUT if spare < 4 else StopReason.FINAL
    assert played.trajectory.stop is expected
