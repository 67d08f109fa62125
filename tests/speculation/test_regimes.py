"""Nothing is slower than sequential: whatever the world model, the tools and the load are like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from obsspec.speculation.decisions import What, Why
from obsspec.speculation.expected_value import ExpectedValueGate, GateSettings
from obsspec.speculation.gate import OpenGate
from obsspec.values import Outcome
from tests.speculation.regimes import Regime, play, ratio

IDLE = Regime(right=0.66, capacity=64, concurrency=4)
SATURATED = Regime(right=0.66, capacity=4, concurrency=16)
TIR = Regime(right=0.66, capacity=4, concurrency=8, tool_s=(0.01, 0.03), tokens=(150, 300), prediction_s=0.2)


def test_with_an_idle_engine_it_gains_what_an_open_gate_gains() -> None:
    gated, played = ratio(IDLE, ExpectedValueGate())
    free, _ = ratio(IDLE, OpenGate())
    assert gated < 0.8
    assert gated < free + 0.01
    assert played.outcomes[Outcome.MATCH] > 120


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("right", [0.0, 0.66, 1.0])
def test_h01_with_a_saturated_engine_it_is_not_slower(right: float, depth: int) -> None:
    regime = Regime(right=right, capacity=4, concurrency=16, depth=depth)
    gated, played = ratio(regime, ExpectedValueGate())
    assert gated <= 1.01
    assert played.tokens <= 1.02 * play(regime, None).tokens


def test_h01_without_the_gate_the_saturated_engine_is_slower() -> None:
    """The regime is one in which the gate has something to prevent."""
    free, _ = ratio(SATURATED, OpenGate())
    assert free > 1.04


def test_h01_at_half_load_it_still_gains() -> None:
    gated, _ = ratio(Regime(right=0.9, capacity=4, concurrency=8), ExpectedValueGate())
    assert gated < 0.93


@pytest.mark.parametrize("regime", [IDLE, SATURATED, TIR], ids=["idle", "saturated", "fast tools"])
def test_predictions_forced_wrong_stop_after_a_few(regime: Regime) -> None:
    wrong = Regime(0.0, regime.capacity, regime.concurrency, regime.tool_s, regime.tokens, prediction_s=0.01)
    gated, played = ratio(wrong, ExpectedValueGate())
    assert gated <= 1.01
    assert played.branches <= 10


@pytest.mark.parametrize("prediction_s", [0.2, 0.01])
def test_h05_long_generations_and_fast_tools_are_not_slower(prediction_s: float) -> None:
    regime = Regime(0.66, 4, 8, (0.01, 0.03), (150, 300), prediction_s)
    gated, played = ratio(regime, ExpectedValueGate())
    assert gated <= 1.01
    assert prediction_s < 0.1 or played.branches == 0, "the tool is always faster"


def guards() -> ExpectedValueGate:
    return ExpectedValueGate(GateSettings(guarded=True))


@pytest.mark.parametrize("right", [0.66, 0.9])
def test_with_guards_and_an_idle_engine_it_gains_what_an_open_gate_gains(right: float) -> None:
    regime = Regime(right, capacity=64, concurrency=4, depth=4, guarded=True)
    gated, _ = ratio(regime, guards())
    free, _ = ratio(regime, OpenGate())
    plain, _ = ratio(replace(regime, guarded=False), ExpectedValueGate())
    assert gated < free + 0.01
    assert gated < plain - 0.02, "guards hide more"


@pytest.mark.parametrize("right", [0.0, 0.66, 0.9])
@pytest.mark.parametrize("tokens", [(8, 12), (30, 100)], ids=["short turns", "turns"])
def test_h01_with_guards_a_saturated_engine_is_not_slower(tokens: tuple[int, int], right: float) -> None:
    regime = Regime(right, capacity=2, concurrency=16, tokens=tokens, depth=4, guarded=True)
    gated, _ = ratio(regime, guards())
    assert gated <= 1.01


def test_h05_with_guards_long_generations_and_fast_tools_are_not_slower() -> None:
    gated, _ = ratio(replace(TIR, guarded=True, depth=4), guards())
    assert gated <= 1.01


def test_h06_a_world_model_that_is_always_late_is_left_alone() -> None:
    _, played = ratio(TIR, ExpectedValueGate(failures=5, pause=50))
    turns = sum(played.outcomes.values())
    assert played.outcomes[Outcome.CANCEL] < turns / 5
    assert any(d.why is Why.BROKEN for d in played.decisions)


def test_every_decision_is_in_the_trace_with_its_numbers() -> None:
    _, played = ratio(SATURATED, ExpectedValueGate())
    starts = [d for d in played.decisions if d.what is What.START]
    looks = [d for d in played.decisions if d.what is What.PREDICT]
    said = sum(len(a.said) for r in played.results if r.speculation for a in r.speculation.attempts)
    assert len(starts) == said
    assert len(looks) >= said
    assert sum(d.allowed for d in starts) == played.branches
    assert all(0 < d.p < 1 and d.gain_s > 0 and d.cost_s > 0 and d.source == "guess" for d in starts)
    assert any(d.load > 2 for d in starts)
    assert {d.why for d in starts} <= {Why.WORTH, Why.NOT_WORTH}


def test_what_would_have_matched_is_known_while_nothing_may_start() -> None:
    gate = ExpectedValueGate()
    _, played = ratio(SATURATED, gate)
    attempts = [a for r in played.results if r.speculation for a in r.speculation.attempts]
    gated = [a for a in attempts if a.outcome is Outcome.GATED and a.said]
    assert len(gated) > 150
    assert 0.55 < sum(a.would_match for a in gated) / len(gated) < 0.77
    assert gate.reliability.mean("guess", gated[-1].kind, 0.5) == pytest.approx(0.66, abs=0.15), "learnt all the same"


def test_a_gate_that_closed_opens_again_when_the_load_is_gone() -> None:
    gate = ExpectedValueGate()
    _, busy = ratio(SATURATED, gate)
    gated, idle = ratio(IDLE, gate)
    assert busy.branches < 0.1 * sum(busy.outcomes.values())
    assert idle.branches > 0.5 * sum(idle.outcomes.values())
    assert gated < 0.85


def test_a_gate_that_closed_opens_again_when_predictions_become_right() -> None:
    gate = ExpectedValueGate()
    ratio(Regime(0.0, 64, 4), gate)
    gated, _ = ratio(IDLE, gate)
    assert gated < 0.9
