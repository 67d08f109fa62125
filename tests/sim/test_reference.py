"""The reference workload with guarded calls: what must hold of it, on fewer rollouts than the command has."""

from __future__ import annotations

from itertools import pairwise

import pytest

from obsspec.sim.reference import Reference, Variant
from obsspec.sim.reference_table import holds, published_row, reference_json, reference_tables


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(Variant(), rollouts=64)


def test_a_batch_hides_twice_as_much_as_published_at_half_the_waste_without_a_second_pool(reference: Reference) -> None:
    sequential, guarded = reference.batches()
    row = published_row()
    assert sequential.figures.agent_s == pytest.approx(row["sequential_s"], rel=0.01)
    assert guarded.hidden > 2 * row["hidden"]
    assert guarded.discarded_per_s < 0.6 * row["discarded_per_s"]
    assert guarded.figures.agent_p99_s < 0.85 * sequential.figures.agent_p99_s
    assert guarded.figures.match == pytest.approx(0.9, abs=0.02)
    assert holds([guarded])
    assert not holds([sequential])  # nothing is saved


def test_each_cause_takes_something_from_what_could_be_hidden(reference: Reference) -> None:
    causes = list(reference.causes(48))
    hidden = [line.hidden for line in causes]
    assert hidden[0] > 0.9  # all but the last call of a rollout
    assert all(after < before + 0.02 for before, after in pairwise(hidden))
    assert hidden[2] == pytest.approx(hidden[1] - 0.1, abs=0.05)  # a wrong prediction costs one call
    lines = reference.batches()
    assert reference_tables(reference.variant, lines, lines, causes).renderables
    written = reference_json(reference.variant, lines, lines, causes)
    assert written["published"]["hidden"] == pytest.approx(0.206, abs=0.001)
    assert len(written["causes"]) == len(causes)


def test_published_figures_are_those_of_the_tables() -> None:
    row = published_row()
    assert row["discarded_per_s"] == pytest.approx(198 / 3.92, rel=0.001)
    assert row["reduction"] == pytest.approx(0.093, abs=0.001)
