"""Late, broken and simultaneous: speculation never costs the rollout anything, and every race has one winner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from random import Random

import anyio
import pytest

from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.controller import Controller
from obsspec.speculation.gate import Breaker, OpenGate
from obsspec.testing import Ending, Move, ScriptedPolicy, always, run_virtual, toy_renderer, toy_vocabulary
from obsspec.testing.delays import constant
from obsspec.testing.virtual_clock import Backend
from obsspec.testing.world_model import Plan
from obsspec.values import Completion, Observation, Outcome, Tokens
from obsspec.world.language import LanguageWorldModel
from tests.core.ledger import Ledger
from tests.core.machine import RENDERER, TURNS
from tests.core.scene import Candidates, Scene, answer, call, recite, says

TURNS_OF_LS = recite(*[call("ls")] * 5, answer())


@pytest.mark.anyio
async def test_h05_a_tool_that_answers_first_cancels_the_prediction_at_no_delay() -> None:
    scene = Scene(TURNS_OF_LS, says("a"), tool_s=0.01, prediction_s=0.2)
    a, b = await scene.both()
    assert b.outcomes == [Outcome.CANCEL] * 5, "late, not wrong"
    assert b.trajectory.agent_s == pytest.approx(a.trajectory.agent_s)
    assert b.report.discarded_policy_tokens == 0


@pytest.mark.anyio
async def test_h05_a_late_candidate_does_not_undo_an_early_wrong_one() -> None:
    scene = Scene(TURNS_OF_LS, says("a"), tool_s=1.5, prediction_s=1.0, breadth=2, plan=always(Move.WRONG, Move.RIGHT))
    _, played = await scene.both()
    assert played.outcomes == [Outcome.ROLLBACK] * 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("plan", "outcome"),
    [
        (always(ending=Ending.ERROR), Outcome.FAILED),
        (always(ending=Ending.CRASH), Outcome.FAILED),
        (always(ending=Ending.HANG), Outcome.FAILED),
        (always(), Outcome.GATED),
        (always(Move.GARBAGE), Outcome.ROLLBACK),
        (always(Move.RIGHT, ending=Ending.ERROR), Outcome.MATCH),
        (always(Move.WRONG, ending=Ending.ENDLESS), Outcome.ROLLBACK),
    ],
    ids=["error", "crash", "hang", "silent", "garbage", "right, then error", "endless"],
)
async def test_h06_a_broken_world_model_costs_no_time_and_is_counted(plan: Plan, outcome: Outcome) -> None:
    scene = Scene(TURNS_OF_LS, says("a"), plan=plan, predict_timeout_s=5.0, limits=Limits(8, 200, 600))
    a, b = await scene.both()
    assert b.outcomes == [outcome] * 5
    assert b.trajectory.agent_s <= a.trajectory.agent_s + 1e-6


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("texts", "outcome"),
    [(["\ud800"], Outcome.FAILED), (["\ud800", "a"], Outcome.MATCH), (["a"] * 9, Outcome.MATCH)],
)
async def test_h06_text_that_cannot_be_encoded_is_no_candidate(texts: list[str], outcome: Outcome) -> None:
    scene = Scene(TURNS_OF_LS, says("a"), world_model=Candidates(lambda _: texts))
    _, played = await scene.both()
    assert played.outcomes == [outcome] * 5


@pytest.mark.anyio
async def test_h06_the_breaker_goes_sequential_and_tries_again() -> None:
    scene = Scene(recite(call("ls")), says("a"), plan=always(ending=Ending.ERROR), limits=Limits(13, 200, 4000))
    scene.gate = Breaker(failures=3, pause=4)
    _, played = await scene.both()
    failed, gated = Outcome.FAILED, Outcome.GATED
    assert played.outcomes == [failed] * 3 + [gated] * 4 + [failed] * 3 + [gated] * 3
    assert played.report.predictions_started == 6


@pytest.mark.anyio
async def test_h06_an_endless_prediction_is_cut_off_and_counted() -> None:
    def endless(prompt: Tokens, random: Random) -> Tokens:
        return toy_vocabulary().encode("y" * 100_000)

    world_engine = ScriptedPolicy(endless, first_s=constant(0.1), chunk=1000)
    world_model = LanguageWorldModel(world_engine, toy_renderer(), max_tokens=64)
    scene = Scene(TURNS_OF_LS, says("a"), world_model=world_model, breadth=2)
    _, played = await scene.both()
    assert played.outcomes == [Outcome.FAILED] * 5
    assert world_model.cut_off == 10
    assert world_engine.tokens == 10 * 64
    assert not world_engine.open


@pytest.mark.anyio
async def test_h06_a_megabyte_predicted_starts_no_branch_beyond_the_context() -> None:
    scene = Scene(TURNS_OF_LS, says("a"), world_model=Candidates(lambda _: ["y" * 1_000_000]))
    _, played = await scene.both()
    assert played.outcomes == [Outcome.ROLLBACK] * 5
    assert len(scene.requests) == 6


@pytest.mark.anyio
async def test_h06_a_world_model_that_cannot_learn_is_counted_and_ignored() -> None:
    scene = Scene(TURNS_OF_LS, says("a"))
    world_model = scene.world_model = scene.make_world_model()

    def learn(context: object, observations: object) -> None:
        raise ZeroDivisionError("planned")

    world_model.learn = learn  # pyright: ignore
    _, played = await scene.both()
    assert played.report.learning_errors == 5
    assert played.outcomes == [Outcome.MATCH] * 5


# All orders --------------------------------------------------------------------------------------------------------

RIGHT, WRONG = Observation("truth"), Observation("guess")


def _completion(turn: str, mark: float) -> Completion:
    ids, reason = TURNS[turn]
    return Completion(ids, (mark,) * len(ids), reason)


class Race:
    """A turn is committed, two branches on it are running; then everything happens at once."""

    def __init__(self) -> None:
        self.rules = RolloutRules(RENDERER, Limits(8, 30, 4000), "seed")
        self.ledger = Ledger(Controller(self.rules, OpenGate(), depth=2, breadth=3), self.rules, depth=2, breadth=3)
        first = self.rules.first("go").key
        assert first is not None
        self.ledger.request(first)
        self.ledger.complete(0, _completion("call", -1.0))
        for guess in (RIGHT, WRONG):
            self._predict(guess)
        entry = self.ledger.entries[0]
        assert entry.completion is not None
        follow = self.rules.follow(0, entry.key, entry.completion, (RIGHT,)).key
        assert follow is not None
        self.follow = follow

    def _predict(self, guess: Observation) -> None:
        self.ledger.predict(0, (guess,))

    def stream_ends(self) -> None:
        self.ledger.complete(1, _completion("other call", -2.0))

    def wrong_stream_ends(self) -> None:
        self.ledger.complete(2, _completion("call", -3.0))

    def engine_fails(self) -> None:
        self.ledger.fail(1)

    def tool_answers(self) -> None:
        self.ledger.observe(RIGHT)

    def loop_asks(self) -> None:
        if not self.ledger.closed and self.ledger.head == 0:
            self.ledger.request(self.follow)

    def loop_asks_after_an_update(self) -> None:
        if not self.ledger.closed and self.ledger.head == 0:
            self.ledger.request(replace(self.follow, weight_version="1"))

    def third_guess(self) -> None:
        self._predict(Observation("third"))

    def deadline(self) -> None:
        self.ledger.end_prediction(0)

    def user_cancels(self) -> None:
        self.ledger.abandon()

    def rollout_ends(self) -> None:
        self.ledger.close()


EVENTS: list[Callable[[Race], None]] = [
    Race.stream_ends,
    Race.wrong_stream_ends,
    Race.engine_fails,
    Race.tool_answers,
    Race.loop_asks,
    Race.loop_asks_after_an_update,
    Race.third_guess,
    Race.deadline,
    Race.user_cancels,
    Race.rollout_ends,
]


def test_h07_all_orders_of_everything_at_once_have_one_winner() -> None:
    """The ledger checks each step: one use, one outcome, one end for everything. 5,040 orders."""
    for order in permutations(EVENTS, 4):
        race = Race()
        try:
            for event in order:
                event(race)
            race.ledger.close()
        except AssertionError as error:
            raise AssertionError([event.__name__ for event in order]) from error
        kept = [entry for entry in race.ledger.entries.values() if entry.handed]
        assert 1 <= len(kept) <= 2


def test_h07_the_branch_is_kept_in_every_order_in_which_nothing_else_interferes() -> None:
    calm = [
        Race.stream_ends,
        Race.wrong_stream_ends,
        Race.tool_answers,
        Race.loop_asks,
        Race.third_guess,
        Race.deadline,
    ]
    for order in permutations(calm):
        race = Race()
        for event in order:
            event(race)
        assert race.ledger.entries[1].handed, [event.__name__ for event in order]
        assert race.ledger.entries[0].outcome is Outcome.MATCH
        race.ledger.close()


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("at_s", [0.0, 1.0, 2.0, 3.0, 4.0])
def test_h07_a_deadline_of_the_user_in_the_same_tick_as_anything_leaves_nothing(backend: Backend, at_s: float) -> None:
    """Generation, prediction, branch and tool all end on whole seconds, and so does the user's patience."""

    async def play() -> None:
        for delay in range(50):
            scene = Scene(recite(*[call("ls")] * 3, answer()), says("a"), tool_s=1.0 + delay % 3, depth=2, breadth=2)
            policy = scene.policy = scene.make_policy()
            world_model = scene.world_model = scene.make_world_model()
            with anyio.move_on_after(at_s):
                await scene.speculative()
            assert not policy.open
            assert world_model.open == 0

    run_virtual(play, backend=backend)
