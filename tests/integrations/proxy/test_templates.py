"""How clients write down what they were answered is found from what they sent, and never assumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from obsspec.integrations.proxy.habits import Habits
from obsspec.integrations.proxy.templates import explain, explains
from obsspec.integrations.proxy.wire import canonical

Json = dict[str, Any]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
ARGUMENTS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.one_of(TEXT, st.integers(), st.none()), max_size=3
)


@st.composite
def calls(draw: st.DrawFn) -> Json:
    number = draw(st.integers(min_value=10**8, max_value=10**9))
    function = {"name": draw(st.sampled_from(("bash", "search"))), "arguments": json.dumps(draw(ARGUMENTS))}
    return {"id": f"call_{number}", "type": "function", "function": function}


@st.composite
def answers(draw: st.DrawFn) -> Json:
    """What an engine says: text, or calls with or without text."""
    message: Json = {"role": "assistant", "content": draw(TEXT), "refusal": None, "reasoning_content": draw(TEXT)}
    made = draw(st.lists(calls(), max_size=2))
    if made:
        message["content"] = draw(st.sampled_from((None, message["content"])))
        message["tool_calls"] = made
    return message


def _whole(m: Json) -> Json:
    return m


def _short(m: Json) -> Json:
    kept: Json = {"role": m["role"], "content": m["content"] or ""}
    return {**kept, "tool_calls": m["tool_calls"]} if "tool_calls" in m else kept


def _without_null(m: Json) -> Json:
    return {key: value for key, value in m.items() if value is not None}


def _other_order(m: Json) -> Json:
    made = [{"function": call["function"], "type": call["type"], "id": call["id"]} for call in m.get("tool_calls", ())]
    return {"content": m["content"], "tool_calls": made, "role": "assistant", "function_call": None}


def _parts(m: Json) -> Json:
    return {"role": "assistant", "content": [{"type": "text", "text": f"{m['content'] or ''}"}], "name": "me"}


def _written_again(m: Json) -> Json:
    made = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":")),
            },
        }
        for call in m.get("tool_calls", ())
    ]
    return {"role": "assistant", "content": m["content"], **({"tool_calls": made} if made else {})}


def _as_the_sdk_parses(m: Json) -> Json:
    """What the streaming helper of the openai SDK makes of calls."""
    made = [
        {
            "id": call["id"],
            "function": {**call["function"], "parsed_arguments": json.loads(call["function"]["arguments"])},
            "type": "function",
            "index": index,
        }
        for index, call in enumerate(m.get("tool_calls", ()))
    ]
    return {"content": m["content"], "role": "assistant", "tool_calls": made or None, "parsed": None}


def _thoughts_renamed(m: Json) -> Json:
    return {"role": "assistant", "content": m["content"], "reasoning": m["reasoning_content"]}


CLIENTS = (_whole, _short, _without_null, _other_order, _written_again)


@settings(max_examples=150)
@given(st.sampled_from(CLIENTS), st.lists(answers(), min_size=1, max_size=6), answers())
def test_what_explains_one_client_is_right_about_all_it_has_sent(
    client: Callable[[Json], Json], seen: list[Json], other: Json
) -> None:
    pairs = [(answer, client(answer)) for answer in seen]
    template = explain(pairs)
    assert template is not None
    assert all(explains(template, pair) for pair in pairs)
    kinds = {("tool_calls" in answer, answer["content"] is None, bool(answer["content"])) for answer in seen}
    if {(False, False, True), (True, True, False), (True, False, True)} <= kinds:  # it has shown all it does
        assert canonical(template.fill(other)) == canonical(client(other))


@given(st.lists(st.tuples(answers(), answers()), min_size=1, max_size=4))
def test_no_template_is_given_that_does_not_explain_every_pair(pairs: list[tuple[Json, Json]]) -> None:
    template = explain(pairs)
    assert template is None or all(explains(template, pair) for pair in pairs)


def answer(text: str | None, *ids: str) -> Json:
    made = [{"id": i, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for i in ids]
    return {
        "role": "assistant",
        "content": text,
        "reasoning_content": "hm, let me see",
        **({"tool_calls": made} if made else {}),
    }


def test_texts_in_parts_and_fields_with_other_names_are_found() -> None:
    for client in (_parts, _thoughts_renamed):
        template = explain([(answer("one two"), client(answer("one two"))), (answer("three"), client(answer("three")))])
        assert template is not None
        assert template.fill(answer("four")) == client(answer("four"))


def test_arguments_that_are_parsed_and_numbered_are_found() -> None:
    seen = [call_with(f"call_{i}", {"command": f"ls {i}"}, {"command": "pwd"}) for i in range(2)]
    template = explain([(each, _as_the_sdk_parses(each)) for each in seen])
    assert template is not None
    other = call_with("call_9", {"query": ["x"], "n": 1}, {"command": "id"}, {})
    assert canonical(template.fill(other)) == canonical(_as_the_sdk_parses(other))


def call_with(name: str, *arguments: Json) -> Json:
    made = [
        {"id": f"{name}_{i}", "type": "function", "function": {"name": "bash", "arguments": json.dumps(each)}}
        for i, each in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def test_an_echo_that_was_never_seen_is_not_expected() -> None:
    habits = Habits()
    assert habits.tail is None
    habits.learn(
        answer("a", "x1"),
        [{"id": "x1"}],
        [_short(answer("a", "x1")), {"role": "tool", "tool_call_id": "x1", "content": "out"}],
    )
    assert habits.expect([{"id": "y2"}], ["new"]) == ('{"role":"tool","tool_call_id":"y2","content":"new"}',)


def test_what_a_client_does_after_plain_talk_says_nothing_about_results() -> None:
    habits = Habits()
    habits.learn(answer("hello"), [], [_short(answer("hello")), {"role": "user", "content": "bye"}])
    assert habits.tail is None


def test_b08_an_empty_result_is_a_result() -> None:
    habits = Habits()
    for i, text in enumerate(("", "one", "")):
        call = {"id": f"call_{i}"}
        habits.learn(
            answer(None, f"call_{i}"),
            [call],
            [_short(answer(None, f"call_{i}")), {"role": "tool", "content": text, "tool_call_id": call["id"]}],
        )
    assert habits.expect([{"id": "call_9"}], [""]) == ('{"role":"tool","content":"","tool_call_id":"call_9"}',)
    assert habits.expect([{"id": "call_9"}], ["\n"]) == ('{"role":"tool","content":"\\n","tool_call_id":"call_9"}',)


def test_messages_that_always_follow_the_results_are_expected_too() -> None:
    habits = Habits()
    note = {"role": "user", "content": "Go on."}
    for i in range(2):
        habits.learn(
            answer(None, f"call_{i}"),
            [{"id": f"call_{i}"}],
            [
                _short(answer(None, f"call_{i}")),
                {"role": "tool", "content": f"out {i}", "tool_call_id": f"call_{i}"},
                note,
            ],
        )
    assert habits.expect([{"id": "call_9"}], ["x y"])[1] == canonical(note)


def test_a_client_that_changes_its_ways_is_followed() -> None:
    habits = Habits()
    for client in (_short, _short, _whole, _whole):
        habits.learn(
            answer("a", "x1"),
            [{"id": "x1"}],
            [client(answer("a", "x1")), {"role": "tool", "tool_call_id": "x1", "content": "out"}],
        )
    assert habits.echo.fill(answer("b", "x2")) == _whole(answer("b", "x2"))
