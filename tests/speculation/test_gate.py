"""The gate that weighs, decision by decision: thresholds, hysteresis, exploration, the breaker, and the off switch."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.speculation.decisions import (
    Ask,
    Decision,
    GenerationEnded,
    GenerationStarted,
    Look,
    Predicted,
    Said,
    Seen,
    Settled,
    Start,
    ToolEnded,
    Why,
)
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import Breaker, Gate
from obsspec.testing.virtual_clock import Backend, run_virtual
from obsspec.values import Outcome
from tests.core.scene import Scene, answer, call, recite, says

UNSURE = Start(0, ("bash:cat",), "lm", 0.5)


class Crowd:
    """Other requests at the engine, as the engine counts them."""

    def __init__(self) -> None:
        self.size = 0

    def __call__(self) -> int:
        return self.size


def taught(
    load: Crowd | None = None, *, slowing: float = 0.1, settings: GateSettings | None = None
) -> ExpectedValueGate:
    """Knows a tool of 2 s, a turn of about 1 s, and an engine on which a request slows the others so much."""
    gate = ExpectedValueGate(settings, load=load)
    now = 0.0
    for crowd in (1, 4, 8, 2, 6) * 4:
        for ticket in range(crowd):
            gate.saw(GenerationStarted(ticket, now))
        now += 1.0 + slowing * (crowd - 1)
        for ticket in range(crowd):
            gate.saw(GenerationEnded(ticket, now, 50, finished=True))
        gate.saw(ToolEnded("bash:cat", 2.0))
    return gate


def settled(matched: bool, *, kind: str = "bash:cat", source: str = "lm", confidence: float = 0.5) -> Settled:
    outcome = Outcome.MATCH if matched else Outcome.ROLLBACK
    return Settled(kind, outcome, (Said(source, confidence, confidence, True, matched),))


def test_a_cold_gate_starts_while_it_costs_nothing() -> None:
    gate = ExpectedValueGate()
    for source, confidence in (("rules", 0.99), ("lm", 0.5), ("memory", 0.4)):
        decision = gate.starts(Start(0, ("bash:cat",), source, confidence))
        assert decision.allowed
        assert decision.p == pytest.approx(confidence)
        assert decision.gain_s > decision.cost_s > 0


def test_predictions_that_are_wrong_close_a_class_and_then_the_source() -> None:
    gate = taught()
    for _ in range(4):
        gate.saw(settled(matched=False))
    assert not gate.starts(UNSURE).allowed
    for number in range(6):
        gate.saw(settled(matched=False, kind=f"kind {number}"))
    assert not gate.starts(Start(0, ("never seen",), "lm", 0.5)).allowed
    assert gate.starts(Start(0, ("never seen",), "rules", 0.9)).allowed, "another source is another matter"


def test_a_closed_class_opens_when_what_was_not_started_would_have_matched() -> None:
    gate = taught()
    for _ in range(10):
        gate.saw(settled(matched=False))
    assert not gate.starts(UNSURE).allowed
    for _ in range(20):
        gate.saw(Settled("bash:cat", Outcome.GATED, (Said("lm", 0.5, 0.1, False, True),)))
    assert gate.starts(UNSURE).allowed


def test_nothing_is_learnt_from_an_observation_that_never_came() -> None:
    gate = taught()
    before = gate.starts(UNSURE).p
    gate.saw(Settled("bash:cat", Outcome.CANCEL, (Said("lm", 0.5, 0.5, True, None),)))
    assert gate.starts(UNSURE).p == before


def test_a_chain_is_as_likely_as_all_of_it() -> None:
    gate = taught()
    alone = gate.starts(UNSURE)
    deep = gate.starts(Start(1, ("bash:cat", "bash:cat"), "lm", 0.5, chain=0.3))
    assert deep.p == pytest.approx(0.3 * alone.p)
    assert alone.allowed
    assert not deep.allowed


def test_load_closes_and_its_numbers_say_why() -> None:
    crowd = Crowd()
    gate = taught(crowd)
    assert gate.starts(UNSURE).allowed
    crowd.size = 30
    for _ in range(20):
        decision = gate.starts(UNSURE)
    assert not decision.allowed
    assert decision.why is Why.NOT_WORTH
    assert decision.load > 25
    assert decision.cost_s > decision.gain_s


def test_what_the_engine_would_queue_is_not_started() -> None:
    crowd = Crowd()
    gate = taught(crowd, slowing=0.0, settings=GateSettings(slots=2))
    crowd.size = 2
    decision = gate.starts(Start(0, ("bash:cat",), "rules", 0.99))
    assert not decision.allowed
    assert decision.why is Why.FULL
    assert gate.starts(Start(0, ("bash:cat",), "rules", 0.99, frees=1)).allowed, "one ends for it"


def test_with_guards_short_turns_between_long_waits_are_worth_starting() -> None:
    """A turn of 0.05 s hides itself at the most; with guards it lets the next wait of 2 s begin early."""
    decisions: list[Decision] = []
    for guarded in (False, True):
        gate = ExpectedValueGate(GateSettings(guarded=guarded))
        for ticket in range(8):
            gate.saw(GenerationStarted(ticket, ticket))
            gate.saw(GenerationEnded(ticket, ticket + 0.05, 4, finished=True))
            gate.saw(ToolEnded("bash:cat", 2.0))
        for _ in range(4):
            gate.saw(settled(matched=False))
        decisions.append(gate.starts(UNSURE))
    plain, guarded = decisions
    assert not plain.allowed
    assert guarded.allowed
    assert guarded.p == plain.p
    assert guarded.cost_s == plain.cost_s, "the engine is busy for as long"
    assert guarded.gain_s == pytest.approx(40 * plain.gain_s)


def test_little_time_left_is_worth_little() -> None:
    gate = taught()
    early, late = gate.starts(UNSURE), gate.starts(Start(0, ("bash:cat",), "lm", 0.5, elapsed_s=1.9))
    assert early.gain_s > 5 * late.gain_s


# H-02: no flapping --------------------------------------------------------------------------------------------------


def test_h02_load_that_crosses_the_threshold_back_and_forth_does_not_make_it_flap() -> None:
    crowd = Crowd()
    gate = taught(crowd)
    threshold = _threshold(crowd, gate)
    gate.flips = 0
    for size in [threshold - 1, threshold, threshold + 1, threshold] * 100:
        crowd.size = size
        gate.starts(UNSURE)
    assert gate.flips <= 1


def test_h02_load_that_comes_and_goes_for_long_is_followed_once_each_time() -> None:
    crowd = Crowd()
    gate = taught(crowd)
    gate.starts(UNSURE)
    allowed: list[bool] = []
    for size in (0, 40, 0, 40):
        crowd.size = size
        allowed += [gate.starts(UNSURE).allowed for _ in range(40)]
    changes = sum(a is not b for a, b in pairwise(allowed))
    assert changes == 3
    assert [allowed[39], allowed[79], allowed[119], allowed[159]] == [True, False, True, False]


def _threshold(crowd: Crowd, gate: ExpectedValueGate) -> int:
    """The smallest steady load at which gain is less than cost."""
    for size in range(200):
        crowd.size = size
        for _ in range(60):
            decision = gate.starts(UNSURE)
        if decision.gain_s < decision.cost_s:
            return size
    raise AssertionError("no load closes it")


@given(st.lists(st.integers(0, 40), min_size=2, max_size=60))
def test_h02_a_class_changes_only_outside_the_band(sizes: list[int]) -> None:
    crowd = Crowd()
    gate = taught(crowd)
    last = gate.starts(UNSURE)
    for size in sizes:
        crowd.size = size
        decision = gate.starts(UNSURE)
        if decision.allowed and not last.allowed:
            assert decision.gain_s > 1.25 * decision.cost_s
        if last.allowed and not decision.allowed:
            assert decision.gain_s <= 0.8 * decision.cost_s
        last = decision


class NeverAsked:
    """A gate that must not be asked."""

    def predicts(self, look: Look) -> Decision:
        raise AssertionError("asked whether to predict")

    def starts(self, start: Start) -> Decision:
        raise AssertionError("asked whether to start")

    def asks(self, ask: Ask) -> Decision:
        raise AssertionError("asked whether to ask")

    def saw(self, seen: Seen) -> None:
        return None


@pytest.mark.parametrize(("depth", "breadth"), [(0, 1), (1, 0)])
def test_h02_switched_off_it_is_the_sequential_pipeline(depth: int, breadth: int) -> None:
    async def play() -> None:
        scene = Scene(recite(*[call("ls")] * 5, answer()), says("a"), depth=depth, breadth=breadth, gate=NeverAsked())
        a, b = await scene.both()
        assert b.trajectory.agent_s == a.trajectory.agent_s
        assert b.outcomes == [Outcome.GATED] * 5
        assert not b.report.decisions
        assert b.report.predictions_started == 0
        assert len(scene.requests) == 6

    run_virtual(play, backend=Backend.ASYNCIO)


# Expensive sources ---------------------------------------------------------------------------------------------------


def test_an_expensive_source_is_asked_where_it_pays() -> None:
    def asked(p: float, have: float = 0.0, *, beside: bool = True) -> bool:
        return taught().asks(Ask(0, "bash:cat", "lm", p, have, beside)).allowed

    assert asked(0.66)
    assert not asked(0.02)
    assert not asked(0.66, have=0.89), "little is left to find"
    assert not asked(0.66, have=0.7, beside=False), "what there is is better"
    assert asked(0.8, have=0.2, beside=False)


def test_a_source_that_is_slower_than_the_tools_is_not_asked() -> None:
    gate = taught()
    for _ in range(10):
        gate.saw(Predicted("lm", 3.0))
    assert not gate.asks(Ask(0, "bash:cat", "lm", 0.9)).allowed
    for _ in range(40):
        gate.saw(Predicted("lm", 0.1))
    assert gate.asks(Ask(0, "bash:cat", "lm", 0.9)).allowed


def test_a_refused_source_is_tried_now_and_then() -> None:
    gate = taught()
    allowed = [n for n in range(1, 257) if gate.asks(Ask(0, "bash:cat", "lm", 0.01)).allowed]
    assert allowed == [2, 4, 8, 16, 32, 64, 128, 192, 256]


# The breaker ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [Breaker(3, 4), ExpectedValueGate(failures=3, pause=4)], ids=["alone", "inside"])
def test_h06_failures_and_lateness_in_a_row_pause_it_and_silence_does_not(gate: Gate) -> None:
    look = Look(0, "bash:cat")
    for _ in range(20):
        gate.saw(Settled("bash:cat", Outcome.GATED))  # had nothing to say
    assert gate.predicts(look).allowed
    for outcome in (Outcome.FAILED, Outcome.CANCEL, Outcome.FAILED):
        assert gate.predicts(look).allowed
        gate.saw(Settled("bash:cat", outcome))
    answers = [gate.predicts(look) for _ in range(5)]
    assert [decision.allowed for decision in answers] == [False] * 4 + [True]
    assert answers[0].why is Why.BROKEN
