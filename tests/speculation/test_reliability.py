"""Posteriors: between 0 and 1, monotone, bounded, following drift, and inherited where nothing is known."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.speculation import reliability
from obsspec.speculation.reliability import Reliability

SOURCES = st.sampled_from(["rules", "memory", "lm"])
KINDS = st.sampled_from(["bash:cat", "bash:ls", "sql:select"])
CONFIDENCES = st.floats(0.0, 1.0)
RECORDS = st.lists(st.tuples(SOURCES, KINDS, CONFIDENCES, st.booleans()), max_size=120)


@given(RECORDS, SOURCES, KINDS, CONFIDENCES)
def test_a_mean_is_a_probability_and_moves_with_the_evidence(
    records: list[tuple[str, str, float, bool]], source: str, kind: str, confidence: float
) -> None:
    known = Reliability()
    for record in records:
        known.record(*record)
    before = known.mean(source, kind, confidence)
    assert 0 < before < 1
    known.record(source, kind, confidence, matched=True)
    after = known.mean(source, kind, confidence)
    assert after > before
    known.record(source, kind, confidence, matched=False)
    assert known.mean(source, kind, confidence) < after


def test_a_new_source_starts_with_what_it_claims() -> None:
    known = Reliability()
    assert known.mean("rules", "bash:cat", 0.97) == pytest.approx(0.97)
    assert known.mean("lm", "bash:cat", 0.2) == pytest.approx(0.2)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.999])
def test_always_wrong_is_seen_within_a_few_attempts_of_a_class_and_ten_of_any(confidence: float) -> None:
    one, many = Reliability(), Reliability()
    for number in range(5):
        one.record("lm", "bash:cat", confidence, matched=False)
        many.record("lm", f"kind {number}", confidence, matched=False)
        many.record("lm", f"other {number}", confidence, matched=False)
    assert one.mean("lm", "bash:cat", confidence) < 0.12
    assert many.mean("lm", "never seen", confidence) < 0.12


@pytest.mark.parametrize("truth", [0.05, 0.5, 0.95])
def test_it_converges_whatever_is_claimed(truth: float) -> None:
    random, known = Random(1), Reliability()
    means: list[float] = []
    for _ in range(400):
        known.record("lm", "bash:cat", 0.7, random.random() < truth)
        means.append(known.mean("lm", "bash:cat", 0.7))
    assert sum(means[100:]) / len(means[100:]) == pytest.approx(truth, abs=0.07)


def test_it_follows_drift() -> None:
    known = Reliability(memory=50)
    for _ in range(1000):
        known.record("memory", "bash:cat", 0.9, matched=True)
    for _ in range(100):
        known.record("memory", "bash:cat", 0.9, matched=False)
    assert known.mean("memory", "bash:cat", 0.9) < 0.2


def test_a_class_learns_apart_from_its_source_and_a_new_one_inherits() -> None:
    known = Reliability()
    for _ in range(30):
        known.record("memory", "bash:date", 0.9, matched=False)
        known.record("memory", "bash:cat", 0.9, matched=True)
    assert known.mean("memory", "bash:date", 0.9) < 0.15
    assert known.mean("memory", "bash:cat", 0.9) > 0.85
    assert 0.3 < known.mean("memory", "bash:new", 0.9) < 0.7


def test_stated_confidence_still_tells_candidates_apart() -> None:
    known, random = Reliability(), Random(2)
    for _ in range(400):
        confidence = random.choice((0.3, 0.97))
        known.record("lm", "bash:cat", confidence, random.random() < confidence)
    assert known.mean("lm", "bash:new", 0.97) > known.mean("lm", "bash:new", 0.3) + 0.3


def test_it_is_bounded() -> None:
    known = Reliability()
    for number in range(2 * reliability.ENTRIES):
        known.record("lm", f"kind {number}", 0.5, matched=True)
    assert len(known) <= reliability.ENTRIES
