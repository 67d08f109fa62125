"""The controller keeps its promises in every order of events, for D and K from 0 to 4."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, settings

from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.commands import Command, Generate
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import Decision, Start, What, Why
from obsspec.speculation.gate import OpenGate
from obsspec.values import Completion, FinishReason, Observation, Outcome, Prediction
from tests.core.machine import RENDERER, ControllerMachine, walk

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


class Patient(OpenGate):
    """Lets a branch start once nothing above it is unverified."""

    def starts(self, start: Start) -> Decision:
        allowed = len(start.kinds) == 1
        return Decision(What.START, start.level, start.kinds[-1], start.source, allowed, Why.PLANNED)


def test_e01_a_branch_that_may_start_only_when_its_turn_is_committed_can_be_claimed_under_the_strict_option() -> None:
    rules = RolloutRules(RENDERER, Limits(), "r")
    controller = Controller(rules, Patient(), depth=2, breadth=1)

    def started(commands: list[Command]) -> list[Generate]:
        return [command for command in commands if isinstance(command, Generate)]

    def speculate(node: int, command: str) -> list[Generate]:
        ids = RENDERER.call(command)
        controller.completed(node, Completion(ids, (0.0,) * len(ids), FinishReason.STOP))
        return started(controller.predicted(node, Prediction((Observation("x"),), "s", 0.5), "7"))

    key = rules.first("go").key
    assert key is not None
    (first,) = started(controller.requested(replace(key, weight_version="7")))
    (second,) = speculate(first.node, "a")
    assert speculate(second.node, "b") == []
    (third,) = started(controller.requested(second.key))
    assert third.speculative
    asked = replace(third.key, weight_version="7")
    assert started(controller.requested(asked)) == [], "it is the one that was started"
    controller.closed()
    assert controller.nodes == 0
