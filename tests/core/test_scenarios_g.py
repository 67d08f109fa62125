"""Losslessness: the kept turn is the first and only draw under the loop's own prompt, seed and limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from random import Random

import pytest

from obsspec.rollout.rules import turn_seed
from obsspec.testing import Move, Request, always, terminal_script
from obsspec.values import Completion, Context, Outcome, Tokens
from tests.core.scene import Candidates, Scene, answer, assert_quiescent, call, recite, says

pytestmark = pytest.mark.anyio


async def test_g01_on_a_noisy_engine_each_kept_turn_is_its_one_draw_for_the_loops_own_prompt() -> None:
    """Every request draws its own noise, as batch make-up does: equality is no claim, conditioning is."""
    drawn: list[tuple[Request, Completion]] = []

    def noise(request: Request, completion: Completion) -> Completion:
        shift = Random(request.number).random()
        noisy = replace(completion, logprobs=tuple(x - shift for x in completion.logprobs))
        drawn.append((request, noisy))
        return noisy

    scene = Scene(terminal_script(final=0.02, cut=0, empty=0), says("a"), spoil=noise, depth=2, breadth=2)
    scene.plan = always(Move.WRONG, Move.RIGHT)
    played = await scene.speculative()
    assert played.outcomes.count(Outcome.MATCH) >= 3
    prompt: Tokens = scene.rules.first("say hello").prompt
    for turn in played.trajectory.turns:
        draws = [completion for request, completion in drawn if request.prompt == prompt]
        assert draws == [turn.completion], "the first draw on this prompt, and the only one"
        prompt = scene.rules.renderer.extend(prompt, turn.completion.token_ids, turn.observations)


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
async def test_g03_the_branch_of_the_matching_observation_is_kept_however_slow_and_long(slow: int) -> None:
    """K = 4 branches of different lengths; the right one is the `slow`-th, and the others end long before it."""

    def script(prompt: Tokens, random: Random) -> Tokens:
        if prompt.count(call("")[1]) == 1:
            return call("ls")
        digest = blake2b(repr(prompt).encode(), digest_size=1).digest()[0]
        return answer("y" * (150 if f"{slow}" in _last_text(prompt) else digest % 5))

    scene = Scene(script, says(f"{slow}"), breadth=4, token_s=0.1)
    scene.world_model = Candidates(lambda _: "00112233")
    _, played = await scene.both()
    assert played.outcomes == [Outcome.MATCH]
    assert played.report.attempts[0].branches == 4, "each candidate came twice and counts once"
    assert played.trajectory.answer == "y" * 150
    assert max(Counter(request.prompt for request in scene.requests).values()) == 1, "no turn is drawn twice"


def _last_text(prompt: Tokens) -> str:
    return "".join(chr(i) for i in prompt[-4:] if i < 128)


async def test_g03_a_mismatch_is_a_fresh_draw_from_the_real_observation() -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), plan=always(*[Move.WRONG] * 4), breadth=4)
    _, played = await scene.both()
    assert played.outcomes == [Outcome.ROLLBACK]
    assert len(scene.requests) == 6
    assert scene.requests[-1].prompt not in {request.prompt for request in scene.requests[:-1]}


async def test_g04_a_turn_that_is_started_again_draws_what_the_sequential_run_drew() -> None:
    """Wrong at turns 1 and 3; right elsewhere."""

    def guess(context: Context) -> str:
        turn = len(context.history)
        return "?" if turn in (1, 3) else "abcde"[turn]

    turns = [call(command) for command in ("ls", "pwd", "cat f", "wc f", "ls")]
    scene = Scene(recite(*turns, answer()), says(*"abcde"), depth=2)
    scene.world_model = Candidates(guess)
    _, played = await scene.both()
    expected = [Outcome.MATCH, Outcome.ROLLBACK, Outcome.MATCH, Outcome.ROLLBACK, Outcome.MATCH]
    assert played.outcomes == expected
    for request in scene.requests:
        assert request.sampling.seed == turn_seed("seed", _level(request.prompt))


def _level(prompt: Tokens) -> int:
    return (prompt.count(call("")[1]) - 1) // 2


async def test_g04_seeds_differ_between_the_turns_and_the_rollouts_of_a_group() -> None:
    script = terminal_script(final=0.0, cut=0.0, empty=0.0)
    first, second = Scene(script, says("a"), seed="task/0"), Scene(script, says("a"), seed="task/1")
    _, a = await first.both()
    _, b = await second.both()
    seeds = [{request.sampling.seed for request in scene.requests} for scene in (first, second)]
    assert len(seeds[0]) == len(seeds[1]) == 8, "one for each turn, however often it was started"
    assert not seeds[0] & seeds[1]
    assert a.trajectory.ids != b.trajectory.ids
    assert_quiescent(a)


def test_g04_the_seed_is_the_documented_function_of_rollout_and_turn() -> None:
    digest = blake2b(b"task/0/3", digest_size=4).digest()
    assert turn_seed("task/0", 3) == int.from_bytes(digest, "big") >> 1
