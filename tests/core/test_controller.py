"""The controller keeps its promises in every order of events, for D and K from 0 to 4."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings

from obsspec.values import Outcome
from tests.core.machine import ControllerMachine, walk

TestController = ControllerMachine.TestCase
TestController.settings = settings(
    max_examples=150, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_long_walks_reach_every_outcome_and_every_depth() -> None:
    outcomes: Counter[Outcome | None] = Counter()
    depths: Counter[int] = Counter()
    breadths: Counter[int] = Counter()
    sent = ran = dropped = 0
    for seed in range(1500):
        ledger = walk(seed)
        outcomes.update(entry.outcome for entry in ledger.entries.values())
        sent += sum(entry.sent_ahead for entry in ledger.entries.values())
        ran += ledger.ran_ahead
        dropped += ledger.dropped_early
        depths[ledger.controller.deepest] += 1
        breadths[max((entry.branches for entry in ledger.entries.values()), default=0)] += 1
    assert min(outcomes[outcome] for outcome in Outcome) > 70
    assert min(depths[depth] for depth in range(5)) > 5
    assert min(breadths[breadth] for breadth in range(5)) > 5
    assert sent > 500
    assert ran > 100
    assert dropped > 25
