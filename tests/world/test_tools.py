"""Constant, computed and object answers of tools that no one has seen before."""

from __future__ import annotations

import json

import pytest

from obsspec.values import Exchange, Observation, ToolCall
from obsspec.world.tools import Tools
from obsspec.world.tools.expressions import evaluate
from obsspec.world.tools.holes import abstract
from obsspec.world.tools.trust import Claim, Trust
from tests.world.tools_support import ask, context, play, text


def test_a_tool_that_always_answers_the_same_is_believed_after_a_few_different_calls() -> None:
    found = play(Tools(), [("note", {"text": f"thought {n}"}, "noted") for n in range(12)])
    assert text(found[0]) is None
    assert text(found[1]) is None
    assert text(found[-1]) == "noted"
    assert found[-1] is not None
    assert found[-1].source == "tools/constant"
    assert 0.8 < found[-1].confidence < 1.0


def test_the_same_call_again_says_nothing_about_other_arguments() -> None:
    tools = Tools()
    play(tools, [("lookup", {"name": "ann"}, "room 12")] * 12)
    assert ask(tools, (ToolCall("lookup", {"name": "bob"}),)) is None


def test_copies_of_arguments_are_filled_in() -> None:
    steps = [
        ("badge", {"owner": f"user_{n}", "level": n * 7}, f"Badge of user_{n} now has level {n * 7}.")
        for n in range(2, 12)
    ]
    assert text(play(Tools(), steps)[-1]) == "Badge of user_11 now has level 77."


def test_a_constant_that_stops_holding_is_no_longer_said() -> None:
    tools = Tools()
    play(tools, [("ping", {"host": f"h{n}"}, "ok") for n in range(10)])
    play(tools, [("ping", {"host": f"g{n}"}, f"late by {n * 3}") for n in range(6)])
    assert ask(tools, (ToolCall("ping", {"host": "z"}),)) is None


@pytest.mark.parametrize(
    ("spell", "answer"),
    [(lambda value: f"{float(value)}", "45.0"), (lambda value: f'{{"result": {value}}}', '{"result": 45}')],
)
def test_the_spelling_of_values_is_learnt(spell, answer: str) -> None:
    steps = [("sums", {"formula": f"{n} * 4 + 1"}, spell(n * 4 + 1)) for n in range(3, 9)]
    tools = Tools()
    play(tools, steps)
    found = ask(tools, (ToolCall("sums", {"formula": "9 * 5"}),))
    assert text(found) == answer
    assert found is not None
    assert found.source == "tools/arithmetic"


def test_operations_on_numbers_are_recognised() -> None:
    tools = Tools()
    play(tools, [("mul", {"a": n, "b": n + 2}, f'{{"result": {n * (n + 2)}}}') for n in range(5, 12)])
    assert text(ask(tools, (ToolCall("mul", {"a": 20, "b": 30}),))) == '{"result": 600}'


@pytest.mark.parametrize(
    "expression",
    ["__import__('os').getcwd()", "9**9**9", "a + 1", "1/0", "(1).__class__", "2**-(10**9)", "7", "-", "1 if 2 else 3"],
)
def test_only_bounded_arithmetic_is_evaluated(expression: str) -> None:
    assert evaluate(expression) is None


def test_an_object_reads_as_its_last_writer_left_it() -> None:
    tools = Tools()
    for n in range(8):
        ticket = {"ticket_id": f"T{n}", "state": "open", "notes": [n]}
        closed = {**ticket, "state": "closed"}
        found = play(
            tools,
            [
                ("read", {"ticket_id": f"T{n}"}, json.dumps(ticket)),
                ("close", {"ticket_id": f"T{n}"}, json.dumps(closed)),
                ("read", {"ticket_id": f"T{n}"}, json.dumps(closed)),
            ],
        )
    assert [text(item) for item in found[1:]] == [json.dumps(closed)] * 2
    assert [item.source for item in found[1:] if item] == ["tools/update", "tools/object"]


def test_updates_are_learnt_as_functions_of_object_and_arguments() -> None:
    """Appended negated payments, a copied argument, a sorted list and a constant; nested objects change key by key."""
    tools = Tools()
    found = []
    for n in range(8):
        old = {"id": f"O{n}", "paid": [{"by": f"card{n}", "sum": 10 * n + 5}], "to": {"city": f"C{n}", "zip": n}}
        new = {
            "id": f"O{n}",
            "paid": [*old["paid"], {"by": f"card{n}", "sum": -(10 * n + 5)}],
            "to": {"city": f"New{n}", "zip": n},
            "state": "void",
            "parts": [n, n + 3],
        }
        arguments = {"id": f"O{n}", "city": f"New{n}", "parts": [n + 3, n]}
        found = play(tools, [("show", {"id": f"O{n}"}, json.dumps(old)), ("void", arguments, json.dumps(new))])
    assert text(found[1]) == json.dumps(new)


def test_first_sights_of_objects_are_shared_between_rollouts() -> None:
    tools = Tools()
    pets = [{"pet_id": f"P{n}", "name": f"pet number {n}"} for n in range(12)]
    for pet in pets:
        play(tools, [("pet", {"pet_id": pet["pet_id"]}, json.dumps(pet))])
    found = [play(tools, [("pet", {"pet_id": pet["pet_id"]}, json.dumps(pet))])[0] for pet in pets]
    assert text(found[-1]) == json.dumps(pets[-1])


def test_a_turn_of_two_calls_is_predicted_as_a_whole_or_not_at_all() -> None:
    tools = Tools()
    play(tools, [("note", {"text": f"thought {n}"}, "noted") for n in range(12)])
    both = ask(tools, (ToolCall("note", {"text": "x"}), ToolCall("note", {"text": "y"})))
    assert both is not None
    assert [observation.text for observation in both.observations] == ["noted", "noted"]
    assert ask(tools, (ToolCall("note", {"text": "x"}), ToolCall("unknown", {"text": "y"}))) is None


def test_learning_without_predicting_and_predicting_again_give_the_same() -> None:
    steps = [("note", {"text": f"thought {n}"}, "noted") for n in range(12)]
    asked, silent = Tools(), Tools()
    play(asked, steps)
    history: tuple[Exchange, ...] = ()
    for tool, arguments, answer in steps:
        call = ToolCall(tool, arguments)
        silent.learn(context((call,), history, "task"), (Observation(answer),))
        history = (*history, Exchange((call,), (Observation(answer),)))
    call = (ToolCall("note", {"text": "z"}),)
    assert ask(asked, call) == ask(silent, call) == ask(asked, call)


def test_a_hole_is_filled_only_when_all_explanations_agree() -> None:
    template = abstract("from ann to ann", {"giver": "ann", "taker": "ann"})
    assert template.fill({"giver": "bob", "taker": "cid"}) is None
    learnt = template.meet("from bob to cid", {"giver": "bob", "taker": "cid"})
    assert learnt is not None
    assert learnt.fill({"giver": "eve", "taker": "dan"}) == "from eve to dan"
    assert learnt.meet("from eve to eve", {"giver": "eve", "taker": "dan"}) is None


def test_an_object_of_another_kind_with_the_same_field_is_not_taken_for_it() -> None:
    tools = Tools(floor=0.0)
    for n in range(3):
        play(tools, [("person", {"who": f"p{n}"}, json.dumps({"who": f"p{n}", "age": n, "city": "x", "mail": "y"}))])
    found = play(
        tools,
        [
            ("parcel", {"number": "N1"}, json.dumps({"number": "N1", "who": "p9", "weight": 3})),
            ("person", {"who": "p9"}, json.dumps({"who": "p9", "age": 9, "city": "x", "mail": "y"})),
        ],
    )
    assert found[1] is None or "weight" not in str(text(found[1]))


def test_trust_goes_from_coarse_to_fine() -> None:
    trust = Trust()
    for _ in range(30):
        trust.settle(Claim("a", "tools/x", ("all", "good")), "a")
        trust.settle(Claim("a", "tools/x", ("all", "bad")), "b")
    assert trust.confidence(Claim("a", "tools/x", ("all", "good"))) > 0.95
    assert trust.confidence(Claim("a", "tools/x", ("all", "bad"))) < 0.05
    assert 0.4 < trust.confidence(Claim("a", "tools/x", ("all", "new"))) < 0.6


def test_what_was_answered_before_is_no_evidence() -> None:
    trust = Trust()
    claim = Claim("a", "tools/x", ("all",), evidence=False)
    trust.settle(claim, "b")
    assert trust.confidence(claim) == claim.prior
