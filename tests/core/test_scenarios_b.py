"""What counts as the same observation: everything the policy would see, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from obsspec.rollout.rules import Limits
from obsspec.testing import Move, ScriptedWorldModel, always, toy_renderer
from obsspec.values import Context, Observation, Outcome, StopReason
from tests.core.scene import Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio


def predicts(*observations: Observation) -> ScriptedWorldModel:
    """A world model that always expects these observations."""

    def oracle(context: Context) -> tuple[Observation, ...]:
        return observations

    return ScriptedWorldModel(oracle, always(Move.RIGHT))


@pytest.mark.parametrize(
    ("spare", "kept", "stop"), [(1, True, "final"), (0, True, "context_limit"), (-1, False, "context_limit")]
)
async def test_b04_an_observation_that_fits_exactly_is_kept(spare: int, kept: bool, stop: str) -> None:
    observation = "x" * 20
    scene = Scene(recite(call("ls"), answer("")), says(observation))
    frame = toy_renderer().extend((), (), [Observation(observation)])
    prompt = scene.rules.first("say hello").prompt
    size = len(prompt) + len(call("ls")) + len(frame)
    scene.limits = Limits(8, 200, size + spare)
    _, played = await scene.both()
    assert played.trajectory.stop == stop
    assert (len(played.trajectory.ids) >= size) == kept
    assert played.outcomes == [Outcome.MATCH]
    assert len(scene.requests) == (2 if spare == 1 else 1), "no branch where no token may be sampled"


@pytest.mark.parametrize(
    ("predicted", "real", "outcome"),
    [
        ("", "", Outcome.MATCH),
        ("", "\n", Outcome.ROLLBACK),
        ("\n", "", Outcome.ROLLBACK),
        ("\n", "\n", Outcome.MATCH),
        (" ", "", Outcome.ROLLBACK),
        ("e\u0301", "\u00e9", Outcome.ROLLBACK),
    ],
)
async def test_b08_an_empty_observation_is_one_like_any_other(predicted: str, real: str, outcome: Outcome) -> None:
    scene = Scene(recite(call("true"), answer()), says(real), world_model=predicts(Observation(predicted)))
    _, played = await scene.both()
    assert played.outcomes == [outcome]
    frame = played.trajectory.ids[-len(answer()) - len(toy_renderer().extend((), (), [Observation(real)])) :]
    assert tuple(frame) == (*toy_renderer().extend((), (), [Observation(real)]), *answer())


async def test_b08_no_prediction_is_not_an_empty_one() -> None:
    scene = Scene(recite(call("true"), answer()), says(""), plan=always())
    _, played = await scene.both()
    assert played.outcomes == [Outcome.GATED], "nor is it an attempt"


@pytest.mark.parametrize("real", ["[exit 1]", "(timed out after 30 s)", "(shell state changes lost)"])
async def test_b09_a_flag_that_the_policy_sees_is_part_of_equality(real: str) -> None:
    scene = Scene(recite(call("false"), answer()), says(real), world_model=predicts(Observation("", exit_code=0)))
    _, played = await scene.both()
    assert played.outcomes == [Outcome.ROLLBACK]


async def test_b09_what_the_policy_does_not_see_is_not() -> None:
    real = Observation("out", exit_code=0, empty=False, raw=b"out\n")
    scene = Scene(recite(call("ls"), answer()), lambda _: real, world_model=predicts(Observation("out")))
    _, played = await scene.both()
    assert played.outcomes == [Outcome.MATCH]
    assert played.trajectory.turns[0].observations == (real,), "the real observation is recorded, not the predicted one"


async def test_b10_volatile_output_is_a_plain_rollback() -> None:
    scene = Scene(recite(*[call("date +%N")] * 3, answer()), says("1001", "1002", "1003"))
    scene.world_model = predicts(Observation("1001"))
    _, played = await scene.both()
    assert played.outcomes == [Outcome.MATCH, Outcome.ROLLBACK, Outcome.ROLLBACK]
    assert played.trajectory.stop is StopReason.FINAL


async def test_b10_nearly_the_same_is_not_the_same() -> None:
    scene = Scene(recite(call("ls -l"), answer()), says("f  12 10:00"), plan=always(Move.NEAR))
    scene = replace(scene, breadth=2)
    _, played = await scene.both()
    assert played.outcomes == [Outcome.ROLLBACK]
