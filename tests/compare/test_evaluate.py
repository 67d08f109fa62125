"""Model quality: a world model is asked exactly what it would have known, and judged by the whole observation."""

from __future__ import annotations

import pytest

from obsspec.compare.evaluate import contexts, predict_all, quality
from obsspec.testing.sandbox import oracle
from obsspec.testing.shell import toy_shell
from obsspec.testing.virtual_clock import run_virtual
from obsspec.testing.world_model import Move, ScriptedWorldModel, always

from .conftest import RENDERER, rollouts


def test_contexts_are_the_prefixes_of_the_rollout() -> None:
    (result,) = rollouts(None, 1)
    found = list(contexts(result, RENDERER))
    assert [context.calls[0].command for context, _ in found] == ["mkdir d", "pwd", "ls"]
    for number, (context, observations) in enumerate(found):
        seen = (*context.prompt, *context.completion)
        assert tuple(result.trajectory.ids[: len(seen)]) == seen
        assert len(context.history) == number
        assert observations == result.trajectory.turns[number].observations


@pytest.mark.parametrize(("move", "match"), [(Move.RIGHT, 1.0), (Move.NEAR, 0.0)])
def test_a_match_is_the_exact_text_and_nothing_less(move: Move, match: float) -> None:
    (result,) = rollouts(None, 1)
    world_model = ScriptedWorldModel(oracle(toy_shell), always(move))
    figures = quality([result], run_virtual(predict_all, result, RENDERER, world_model))
    assert figures["predictions"] == 3
    assert figures["match"] == figures["match_nonempty"] == match
    assert figures["reward"] == 1.0
    assert set(figures["match_per_command"]) == {"mkdir", "pwd", "ls"}
    assert figures["match_per_task"]["task-0"]["predictions"] == 3
