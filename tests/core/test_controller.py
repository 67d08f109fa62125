"""The controller keeps its promises in every order of events, for D and K from 0 to 4."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, settings

from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.commands import Command, Discard, DiscardReason, Generate, Settle
from obsspec.speculation.controller import Controller
from obsspec.speculation.decisions import Decision, Start, What, Why
from obsspec.speculation.gate import OpenGate
from obsspec.values import Completion, FinishReason, GenerationKey, Observation, Outcome, Prediction
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


def first_key() -> GenerationKey:
    key = RolloutRules(RENDERER, Limits(), "r").first("go").key
    assert key is not None
    return key


def started(commands: list[Command]) -> list[Generate]:
    return [command for command in commands if isinstance(command, Generate)]


def completed(controller: Controller, node: int, command: str) -> None:
    ids = RENDERER.call(command)
    controller.completed(node, Completion(ids, (0.0,) * len(ids), FinishReason.STOP))


def predicted(controller: Controller, node: int, text: str, version: str | None = None) -> list[Generate]:
    return started(controller.predicted(node, Prediction((Observation(text),), "s", 0.5), version))


def test_an_observation_drops_what_stands_on_another_one_before_the_loop_makes_its_next_call() -> None:
    controller = Controller(RolloutRules(RENDERER, Limits(), "r"), OpenGate(), depth=2, breadth=2)
    (head,) = started(controller.requested(first_key()))
    completed(controller, head.node, "a")
    (right,), (wrong,) = predicted(controller, head.node, "x"), predicted(controller, head.node, "y")
    completed(controller, wrong.node, "b")
    (below,) = predicted(controller, wrong.node, "z")
    dropped = [each for each in controller.observed([Observation("x")]) if isinstance(each, Discard)]
    assert dropped == [Discard(node, DiscardReason.MISMATCH) for node in (wrong.node, below.node)]
    assert started(controller.requested(right.key)) == []
    controller.closed()
    assert controller.nodes == 0


class Patient(OpenGate):
    """Lets a branch start once nothing above it is unverified."""

    def starts(self, start: Start) -> Decision:
        allowed = len(start.kinds) == 1
        return Decision(What.START, start.level, start.kinds[-1], start.source, allowed, Why.PLANNED)


def test_e01_a_branch_that_may_start_only_when_its_turn_is_committed_can_be_claimed_under_the_strict_option() -> None:
    controller = Controller(RolloutRules(RENDERER, Limits(), "r"), Patient(), depth=2, breadth=1)
    (first,) = started(controller.requested(replace(first_key(), weight_version="7")))
    completed(controller, first.node, "a")
    (second,) = predicted(controller, first.node, "x", "7")
    completed(controller, second.node, "b")
    assert predicted(controller, second.node, "x", "7") == []
    (third,) = started(controller.requested(second.key))
    assert third.speculative
    asked = replace(third.key, weight_version="7")
    assert started(controller.requested(asked)) == [], "it is the one that was started"
    controller.closed()
    assert controller.nodes == 0


class Counts(OpenGate):
    """Lets one branch run at a time."""

    def __init__(self) -> None:
        self.asked: list[Start] = []

    def starts(self, start: Start) -> Decision:
        self.asked.append(start)
        allowed = len(self.asked) == 1 or start.frees == 1
        return Decision(What.START, start.level, start.kinds[-1], start.source, allowed, Why.PLANNED)


def replacing(first_done: bool) -> tuple[Controller, Counts, list[Command]]:
    """A tentative "x" has started a branch, and "y" comes."""
    gate = Counts()
    controller = Controller(RolloutRules(RENDERER, Limits(), "r"), gate, depth=2, breadth=1)
    (head,) = started(controller.requested(first_key()))
    completed(controller, head.node, "a")
    tentative = Prediction((Observation("x"),), "quick", 0.9, tentative=True)
    (branch,) = started(controller.predicted(head.node, tentative))
    if first_done:
        completed(controller, branch.node, "b")
    return controller, gate, controller.predicted(head.node, Prediction((Observation("y"),), "slow", 0.95))


def test_the_gate_knows_that_the_branch_of_a_replaced_candidate_makes_room() -> None:
    for first_done in (False, True):
        _, gate, commands = replacing(first_done)
        assert [start.frees for start in gate.asked] == [0, not first_done]
        assert len(started(commands)) == (not first_done)


def test_a_right_candidate_that_was_replaced_is_a_rollback_of_the_one_that_took_its_place() -> None:
    controller, _, _ = replacing(first_done=False)
    (settled,) = [each for each in controller.observed([Observation("x")]) if isinstance(each, Settle)]
    assert (settled.outcome, settled.source) == (Outcome.ROLLBACK, "slow")
    assert [(said.source, said.matched, said.replaced) for said in settled.said] == [
        ("quick", True, True),
        ("slow", False, False),
    ]
