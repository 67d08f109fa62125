"""What a report says of predictions that are odd but allowed."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from obsspec.protocols import Emit
from obsspec.speculation.trace import Fate, SpanKind
from obsspec.values import Context, Observation, Outcome, Prediction, SandboxError
from tests.core.scene import Played, Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio


class Goes:
    """Emits these texts, each list as one candidate, after a second; then goes on for long."""

    def __init__(self, *candidates: Sequence[str]) -> None:
        self._candidates = candidates

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        await anyio.sleep(1)
        for texts in self._candidates:
            emit(Prediction(tuple(map(Observation, texts)), "goes", 0.5))
        await anyio.sleep(100)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        return None


async def play(*candidates: Sequence[str], broken: bool = False) -> Played:
    scene = Scene(recite(call("ls"), answer()), says("a"), breadth=3, world_model=Goes(*candidates))
    scene.predict_timeout_s = 200
    if broken:
        scene.sandbox_fault = lambda number: SandboxError("planned")
    _, played = await scene.both()
    return played


def prediction(played: Played) -> tuple[Fate | None, str, float | None]:
    (span,) = (span for span in played.report.spans if span.kind is SpanKind.PREDICT)
    (attempt,) = played.report.attempts
    return span.fate, span.reason, attempt.prediction_s


@pytest.mark.parametrize("candidates", [[["a"]], [["b"], ["a"]], [["a", "a"], ["a"]]])
async def test_a_match_is_kept_although_the_world_model_goes_on(candidates: list[list[str]]) -> None:
    played = await play(*candidates)
    assert played.outcomes == [Outcome.MATCH]
    assert prediction(played) == (Fate.KEPT, "", 1.0)


async def test_a_candidate_that_counts_for_nothing_has_no_latency() -> None:
    played = await play(["a", "a"], [])
    assert played.outcomes == [Outcome.CANCEL]
    assert prediction(played) == (Fate.DISCARDED, "late", None)


async def test_a_sandbox_that_fails_settles_the_turn_and_counts_the_branch() -> None:
    played = await play(["a"], broken=True)
    assert played.outcomes == [Outcome.CANCEL]
    assert played.report.attempts[0].branches == 1
    assert played.report.discarded_policy_tokens == played.policy.tokens - sum(played.trajectory.mask) > 0
