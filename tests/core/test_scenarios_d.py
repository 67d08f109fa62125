"""Cancelling generations: at the engine, counted, and exactly once."""

from __future__ import annotations

from itertools import permutations

import anyio
import pytest

from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.controller import Controller
from obsspec.speculation.gate import OpenGate
from obsspec.testing import Move, always, run_virtual
from obsspec.testing.virtual_clock import Backend, seed_order
from obsspec.values import Completion, Observation, Outcome
from tests.core.ledger import Ledger
from tests.core.machine import RENDERER, TURNS
from tests.core.scene import Scene, answer, assert_quiescent, call, recite, says

MISS = always(Move.WRONG)


@pytest.mark.anyio
async def test_d01_an_engine_that_ignores_cancels_delays_nobody_and_its_orphans_are_counted() -> None:
    """Four tokens of 10 s each: the discarded branch goes on at the engine for half a minute after its end."""
    turns = recite((*call("ls")[:-1], 5, call("ls")[-1]), answer("ok"))
    scene = Scene(turns, says("a"), plan=MISS, tool_s=3.0, token_s=10.0, ignores_cancel=True)
    quick = Scene(turns, says("a"), plan=MISS, tool_s=3.0, token_s=10.0)
    deaf, prompt = await scene.speculative(), await quick.speculative()
    assert deaf.policy.cancelled == 1
    assert deaf.trajectory.agent_s == prompt.trajectory.agent_s
    assert deaf.trajectory.ids == prompt.trajectory.ids
    assert_quiescent(deaf)


@pytest.mark.anyio
async def test_d01_orphans_are_seen_until_the_engine_is_done() -> None:
    scene = Scene(recite(call("ls"), answer("abcdef")), says("a"), plan=MISS, tool_s=3.0, token_s=10.0)
    scene.ignores_cancel = True
    policy = scene.policy = scene.make_policy()
    with anyio.move_on_after(1.0 + 10.0 * (len(call("ls")) - 1) + 3.5):
        await scene.speculative()
    assert policy.orphans == 2, "the branch on another observation, and the turn that the caller gave up"
    await anyio.sleep(100)
    assert policy.orphans == 0


@pytest.mark.anyio
@pytest.mark.parametrize("after_s", [0.5, 1.0, 2.0, 2.5, 3.0, 10.5])
async def test_d01_cancelled_in_any_state_the_engine_is_free_at_once(after_s: float) -> None:
    """While the turn is generated, while it is predicted on, while the branch runs, while the tool runs."""
    scene = Scene(recite(call("ls"), answer()), says("a"), generation_s=1.0, prediction_s=1.0, depth=2, breadth=2)
    policy = scene.policy = scene.make_policy()
    world_model = scene.world_model = scene.make_world_model()
    with anyio.move_on_after(after_s) as scope:
        await scene.speculative()
    assert scope.cancelled_caught
    assert not policy.open
    assert world_model.open == 0
    assert policy.started == policy.finished + policy.cancelled


def completion(turn: str, mark: float) -> Completion:
    ids, reason = TURNS[turn]
    return Completion(ids, (mark,) * len(ids), reason)


@pytest.mark.parametrize("order", list(permutations(["completed", "observed", "requested"])))
def test_d05_completion_and_mismatch_at_once_end_a_branch_exactly_once(order: tuple[str, ...]) -> None:
    """The ledger checks that a node leaves once, and that nothing of a discarded one is used."""
    rules = RolloutRules(RENDERER, Limits(8, 30, 4000), "seed")
    ledger = Ledger(Controller(rules, OpenGate(), depth=1, breadth=1), rules, depth=1, breadth=1)
    first = rules.first("go").key
    assert first is not None
    ledger.request(first)
    ledger.complete(0, completion("call", -1.0))
    ledger.predict(0, (Observation("guess"),))
    entry = ledger.entries[0]
    assert entry.completion is not None
    follow = rules.follow(0, entry.key, entry.completion, (Observation("truth"),)).key
    assert follow is not None
    for event in order:
        match event:
            case "completed":
                ledger.complete(1, completion("final", -2.0))
            case "observed":
                ledger.observe(Observation("truth"))
            case _:
                ledger.request(follow)
    assert ledger.entries[1].gone == "discard"
    assert not ledger.entries[1].handed
    ledger.fail(1)  # the engine's late word about it
    ledger.complete(2, completion("final", -3.0))
    assert ledger.entries[2].handed
    assert ledger.entries[0].outcome is Outcome.ROLLBACK
    ledger.close()


@pytest.mark.parametrize("seed", range(20))
def test_d05_in_the_same_tick_in_any_task_order(seed: int) -> None:
    """The branch ends at 3 s, the tool too, with the right or a wrong observation."""

    async def play() -> None:
        seed_order(seed)
        for plan in (MISS, always(Move.RIGHT), always(Move.WRONG, Move.RIGHT)):
            scene = Scene(recite(call("ls"), answer()), says("a"), plan=plan, breadth=2)
            scene.tool_s, scene.prediction_s, scene.generation_s = 2.0, 1.0, 1.0
            _, played = await scene.both()
            assert played.policy.started == played.policy.finished + played.policy.cancelled
            assert [r.number for r in scene.requests] == list(range(len(scene.requests))), "an id is never used again"

    run_virtual(play, backend=Backend.TRIO)
