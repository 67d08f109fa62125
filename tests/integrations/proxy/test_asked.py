"""Two requests have the same key only if an engine can not tell them apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.integrations.proxy import asked as asked_module
from obsspec.integrations.proxy.asked import Asked, read_request
from obsspec.integrations.proxy.chat import ChatTurns
from obsspec.integrations.proxy.fields import FieldHabits
from obsspec.integrations.proxy.habits import Habits
from obsspec.integrations.proxy.ids import IdTurns
from obsspec.integrations.proxy.wire import canonical
from obsspec.values import GenerationKey

CHAT = b"/v1/chat/completions"
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(("model", "seed", "tools", "temperature", "stop", "max_tokens")), JSON, max_size=4
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(("role", "content", "name")), JSON, max_size=3), min_size=1, max_size=3
)
BODIES = st.builds(lambda fields, messages: {**fields, "messages": messages}, FIELDS, MESSAGES)


def read(body: Any, headers: tuple[tuple[bytes, bytes], ...] = (), target: bytes = CHAT) -> Asked | None:
    return read_request(target, headers, json.dumps(body).encode())


def key(turns: ChatTurns | IdTurns, asked: Asked | None) -> GenerationKey:
    assert asked is not None
    return turns.key(asked)


def chat() -> ChatTurns:
    return ChatTurns(Habits(), Habits(), FieldHabits().own())


@given(BODIES, BODIES)
def test_equal_keys_are_equal_bodies_and_the_other_way_round(one: dict[str, Any], two: dict[str, Any]) -> None:
    turns = chat()
    same = canonical(dict(sorted(one.items()))) == canonical(dict(sorted(two.items())))
    assert (key(turns, read(one)) == key(turns, read(two))) == same


@given(BODIES)
def test_how_a_body_is_written_does_not_count(body: dict[str, Any]) -> None:
    turns = chat()
    loose = json.dumps(dict(reversed(body.items())), indent=2, ensure_ascii=False)
    other = read_request(CHAT, (), loose.encode("utf-8", "surrogatepass"))
    if other is not None:  # half a character can only be written escaped
        assert key(turns, other) == key(turns, read(body))


@given(BODIES)
def test_the_body_of_a_key_is_the_body_it_was_read_from(body: dict[str, Any]) -> None:
    turns = chat()
    written = turns.body(key(turns, read(body)))
    assert canonical(dict(sorted(json.loads(written).items()))) == canonical(dict(sorted(body.items())))


@given(st.lists(st.integers(min_value=0, max_value=2**32), min_size=1, max_size=20), FIELDS)
def test_the_same_holds_for_token_ids(ids: list[int], fields: dict[str, Any]) -> None:
    body = {**fields, "token_ids": ids}
    asked = read(body, target=b"/inference/v1/generate")
    assert asked is not None
    turns = IdTurns(asked.route, None, FieldHabits().own())
    assert json.loads(turns.body(turns.key(asked))) == json.loads(canonical(body))
    assert turns.size >= 8 * len(ids)


BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    "other",
    [
        {**BODY, "temperature": 1},
        {**BODY, "temperature": 1.0},
        {**BODY, "seed": None},
        {**BODY, "stream": True},
        {**BODY, "unheard_of": {}},
        {**BODY, "messages": [{"content": "hi", "role": "user"}]},  # a template may print it as it came
        {**BODY, "messages": [{"role": "user", "content": "hi", "name": None}]},
        {**BODY, "messages": [{"role": "user", "content": "hi "}]},
        {**BODY, "messages": [{"role": "user", "content": "e\u0301"}]},
        {**BODY, "messages": [{"role": "user", "content": "\u00e9"}]},
        {**BODY, "tools": [{"a": 1, "b": 2}]},
        {**BODY, "tools": [{"b": 2, "a": 1}]},
    ],
)
def test_whatever_may_change_the_sample_changes_the_key(other: dict[str, Any]) -> None:
    turns = chat()
    assert key(turns, read(other)) != key(turns, read(BODY))


@pytest.mark.parametrize("name", [b"authorization", b"x-lora", b"cookie", b"accept-encoding", b"x-request-id"])
def test_headers_count_unless_they_say_nothing(name: bytes) -> None:
    turns = chat()
    assert key(turns, read(BODY, ((name, b"1"),))) != key(turns, read(BODY, ((name, b"2"),)))
    trace = (b"traceparent", b"00-1"), (b"traceparent", b"00-2")
    assert key(turns, read(BODY, trace[:1])) == key(turns, read(BODY, trace[1:]))


def test_conversations_do_not_cross_credentials_paths_or_named_sessions() -> None:
    scopes = {
        asked.scope
        for asked in (
            read(BODY),
            read(BODY, ((b"authorization", b"Bearer a"),)),
            read(BODY, ((b"authorization", b"Bearer b"),)),
            read(BODY, ((b"x-api-key", b"Bearer a"),)),
            read(BODY, ((b"x-obsspec-session", b"1"),)),
            read(BODY, ((b"x-session-id", b"1"),)),
            read(BODY, target=b"/v1/chat/completions?tenant=1"),
            read(BODY, target=b"/other/v1/chat/completions"),
        )
        if asked is not None
    }
    assert len(scopes) == 8


KEYS = (b"authorization", b"cookie", b"api-key", b"ocp-apim-subscription-key", b"x-goog-api-key", b"openai-project")


@pytest.mark.parametrize("name", [*KEYS, b"x-of-some-gateway", b"?api-key", b"?key"])
def test_keys_of_any_name_are_credentials_and_are_not_printed(name: bytes) -> None:
    def of(key: bytes) -> Asked:
        in_query = name.startswith(b"?")
        target, headers = (CHAT + name + b"=" + key, ()) if in_query else (CHAT, ((name, key),))
        asked = read(BODY, headers, target)
        assert asked is not None
        return asked

    one, two = of(b"secret-1"), of(b"secret-2")
    assert one.credentials == of(b"secret-1").credentials != two.credentials
    assert "secret" not in repr(one)


@pytest.mark.parametrize(
    "name", [b"x-request-id", b"x-session-id", b"x-stainless-retry-count", b"traceparent", b"user-agent", b"accept"]
)
def test_requests_of_one_client_have_the_same_credentials(name: bytes) -> None:
    asked = [read(BODY, ((b"authorization", b"a"), (name, value))) for value in (b"1", b"2")]
    assert len({each.credentials for each in asked if each is not None}) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"messages": []}',
        b'{"messages": "hi"}',
        b'{"messages": [1]}',
        b'{"messages": [{}], "n": 2}',
        b'{"messages": [{}], "messages": [{}]}',
        b'{"messages": [{}], "temperature": NaN}',
        b'{"messages": [{}], "temperature": 1e999}',
        b'{"messages": [{"content": "\xff"}]}',
        b"[" * 100_000,
        b'{"messages": [' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"]}",
    ],
)
def test_what_two_readers_may_understand_differently_is_not_understood(body: bytes) -> None:
    assert read_request(CHAT, (), body) is None


def test_what_is_nested_too_deeply_to_be_written_again_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """How deep that is, and whether it can still be read, depends on the interpreter."""

    def too_deep(value: object) -> str:
        raise RecursionError

    monkeypatch.setattr(asked_module, "canonical", too_deep)
    assert read(BODY) is None


def test_text_prompts_and_other_paths_are_not_understood() -> None:
    assert read({"prompt": "text"}, target=b"/v1/completions") is None
    assert read({"prompt": [[1, 2], [3]]}, target=b"/v1/completions") is None
    assert read({"prompt": [1, True]}, target=b"/v1/completions") is None
    assert read({"prompt": [1, -1]}, target=b"/v1/completions") is None
    assert read({"prompt": [1, 2**70]}, target=b"/v1/completions") is None
    assert read(BODY, target=b"/v1/embeddings") is None
    assert read(BODY, ((b"content-encoding", b"gzip"),)) is None
