"""What the proxy does not understand it does not touch."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from obsspec.integrations.proxy import upstream as upstream_module
from obsspec.integrations.proxy.wire import EventReader, Inflater, end_to_end
from tests.integrations.proxy.engine import proxied
from tests.integrations.proxy.test_asked import JSON

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def canned(answer: bytes) -> AsyncGenerator[tuple[str, list[bytes]], None]:
    """A server that says the same to everybody and keeps what it was sent, byte for byte."""
    seen: list[bytes] = []

    async def handle(stream: SocketStream) -> None:
        async with stream:
            seen.append(await _request(stream))
            await stream.send(answer)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", seen
        tasks.cancel_scope.cancel()


async def _request(stream: SocketStream) -> bytes:
    data = b""
    while not _whole(data):
        data += await stream.receive()
    return data


def _whole(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    return len(body) >= (int(length[0]) if length else 0)


async def send(url: str, request: bytes) -> bytes:
    host, _, port = url.removeprefix("http://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(request)
        data = b""
        try:
            while True:
                data += await stream.receive()
        except anyio.EndOfStream:
            return data


def parts(message: bytes) -> tuple[bytes, list[bytes], bytes]:
    """First line, headers in their order with lower-case names, body."""
    head, _, body = message.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return first, [line.partition(b":")[0].lower() + b":" + line.partition(b":")[2] for line in lines], body


ANSWERS = {
    "json": b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"a":  [1] }\n',
    "cookies": b"HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nServer: e\r\ncontent-length: 0\r\n\r\n",
    "teapot": b"HTTP/1.1 418 I'm a Teapot\r\ncontent-length: 2\r\nx-odd: \xe9\r\n\r\nno",
    "redirect": b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n",
    "nothing": b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n",
    "busy": b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy",
    "gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s"
    % (len(gzip.compress(b"hello", mtime=0)), gzip.compress(b"hello", mtime=0)),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_pass_byte_for_byte(name: str) -> None:
    async with canned(ANSWERS[name]) as (upstream, _), proxied(upstream) as (url, _service):
        got = parts(await send(url, b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
        sent = parts(ANSWERS[name])
        assert got[0].split()[1] == sent[0].split()[1]
        assert [line for line in got[1] if line != b"connection: close"] == sent[1]
        assert got[2] == sent[2]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /v1/models?a=%20b&c HTTP/1.1\r\nhost: x\r\nAuthorization: Bearer s\r\nx-twice: 1\r\nx-twice: 2\r\n\r\n",
        b"DELETE /a%2Fb/../c HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-type: a/b\r\ncontent-length: 5\r\n\r\n\x00\xff\r\n!",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nnot json!",
        b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\r\n{"messages": [{"a": 1}],"n":2}',
        b"PUT /files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    ],
)
async def test_requests_pass_byte_for_byte(request_: bytes) -> None:
    async with canned(ANSWERS["json"]) as (upstream, seen), proxied(upstream) as (url, service):
        with anyio.move_on_after(5):
            await send(url, request_.replace(b"\r\nhost: x", b"\r\nhost: x\r\nconnection: close"))
        sent, got = parts(request_), parts(seen[0])
        assert got[0] == sent[0]
        ours = (b"host", b"connection", b"transfer-encoding", b"content-length")
        assert [h for h in got[1] if h.split(b":")[0] not in ours] == [
            h for h in sent[1] if h.split(b":")[0] not in ours
        ]
        body = b"abcde" if b"chunked" in request_ else sent[2]
        assert (
            got[2].replace(b"5\r\nabcde\r\n0\r\n\r\n", b"abcde").replace(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde")
            == body
        )
        assert service.parts.figures.passed == 1


async def test_the_metrics_of_the_engine_stay_reachable_beside_ours() -> None:
    async with (
        canned(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\ntheirs") as (upstream, _),
        proxied(upstream) as (url, _s),
        httpx2.AsyncClient(trust_env=False, verify=False) as client,
    ):
        assert (await client.get(f"{url}/metrics")).text == "theirs"
        ours = (await client.get(f"{url}/obsspec/metrics")).text
        assert 'obsspec_requests_total{kind="passed_on"} 1.0' in ours
        assert (await client.get(f"{url}/obsspec/report")).json()["requests"]["passed_on"] == 1


async def test_a_kept_connection_that_the_engine_drops_is_nobodys_business() -> None:
    """It closes each connection when a second request comes on it, without a word."""
    connections: list[int] = []

    async def handle(stream: SocketStream) -> None:
        async with stream:
            connections.append(1)
            await _request(stream)
            await stream.send(ANSWERS["json"])
            with suppress(anyio.EndOfStream):
                await stream.receive()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        upstream = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        async with proxied(upstream) as (url, _), httpx2.AsyncClient(trust_env=False, verify=False) as client:
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/chat/completions"):
                answer = await client.post(url + path, json={"messages": [{"role": "user"}], "prompt": [1]})
                assert answer.content == parts(ANSWERS["json"])[2]
        assert len(connections) == 4
        tasks.cancel_scope.cancel()


async def test_d04_what_may_have_been_worked_on_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine takes it on a kept connection, and hangs up some time later."""
    monkeypatch.setattr(upstream_module, "AT_ONCE_S", 0.1)
    seen: list[bytes] = []

    async def handle(stream: SocketStream) -> None:
        async with stream:
            seen.append(await _request(stream))
            await stream.send(ANSWERS["json"])
            seen.append(await _request(stream))
            await anyio.sleep(0.3)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        upstream = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        async with proxied(upstream) as (url, _), httpx2.AsyncClient(trust_env=False, verify=False) as client:
            body = {"messages": [{"role": "user"}]}
            answers = [await client.post(f"{url}/v1/chat/completions", json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 502]
        assert len(seen) == 2
        tasks.cancel_scope.cancel()


async def test_an_engine_that_is_not_there_is_a_bad_gateway() -> None:
    async with (
        proxied("http://127.0.0.1:9") as (url, _service),
        httpx2.AsyncClient(trust_env=False, verify=False) as client,
    ):
        for path in ("/v1/models", "/v1/chat/completions"):
            answer = await client.post(url + path, json={"messages": [{"role": "user", "content": "x"}]})
            assert answer.status_code == 502
            assert "ConnectError" in answer.json()["error"]["message"]


def _said(message: dict[str, Any]) -> bytes:
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
TURNS = {
    "call": _said({"role": "assistant", "content": None, "tool_calls": [CALL]}),
    "text": _said({"role": "assistant", "content": "```bash\nls\n```"}),
    "nonsense": _said({"role": "assistant", "content": ["hi"], "tool_calls": [5]}),
}
ODD = st.one_of(JSON, st.sampled_from((["hi"], 5, ["x"], [None], "\ud800", [{"text": "\ud800"}], [CALL])))
MESSAGES = st.builds(
    lambda role, fields: {"role": role, **fields},
    st.one_of(st.sampled_from(("assistant", "tool", "user")), ODD),
    st.dictionaries(st.sampled_from(("content", "tool_calls", "tool_call_id", "name")), ODD),
)
GOES_ON = st.tuples(
    st.lists(st.one_of(MESSAGES, MESSAGES, ODD), max_size=3), st.dictionaries(st.sampled_from(("tools", "model")), ODD)
)
HI = {"role": "user", "content": "hi"}


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(TURNS)), st.lists(GOES_ON, min_size=1, max_size=5))
@example("text", [([{"role": "assistant", "content": ["hi"]}, HI], {})])
@example("call", [([{"role": "assistant", "tool_calls": 5}, HI], {}), ([{"role": "assistant"}, HI], {})])
@example("call", [([{"role": "assistant", "tool_calls": ["x"]}, HI], {})])
@example("call", [([{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "\ud800"}], {})])
def test_whatever_json_follows_a_turn_is_the_engines_to_answer(turn: str, after: list[tuple[list[Any], Any]]) -> None:
    anyio.run(_go_on, TURNS[turn], after)


async def _go_on(turn: bytes, after: list[tuple[list[Any], Any]]) -> None:
    async with (
        canned(turn) as (upstream, seen),
        proxied(upstream, max_branches=0) as (url, service),
        httpx2.AsyncClient(trust_env=False, verify=False) as client,
    ):
        for number, (messages, fields) in enumerate(after):
            first = {"role": "user", "content": f"{number}"}
            for body in ({"messages": [first]}, {**fields, "messages": [first, *messages]}):
                sent = json.dumps(body, indent=1).encode()
                answer = await client.post(f"{url}/v1/chat/completions", content=sent)
                assert (answer.status_code, answer.content) == (200, parts(turn)[2])
                assert parts(seen[-1])[2] == sent
        assert service.parts.figures.confused == 0


def test_headers_of_the_connection_stay_on_it() -> None:
    headers = [(b"Connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"TE", b"trailers"), (b"X-Other", b"2")]
    assert end_to_end(headers) == ((b"x-other", b"2"),)


@given(st.lists(st.text("ab\u2028\r :{}", max_size=6), max_size=5), st.data())
def test_b06_events_are_the_same_however_the_stream_is_cut(texts: list[str], data: st.DataObject) -> None:
    events = [json.dumps(text, ensure_ascii=False).encode() for text in texts]
    whole = b"".join(b"data: " + event + data.draw(st.sampled_from((b"\n\n", b"\r\n\r\n"))) for event in events)
    reader, found = EventReader(), list[bytes]()
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        found += reader.feed(whole[:size])
        whole = whole[size:]
    assert found == events


def test_a_copy_of_a_compressed_answer_is_read_up_to_a_limit() -> None:
    bomb = gzip.compress(b"0" * 10_000_000)
    assert len(Inflater("gzip").feed(bomb, 1000)) == 1001
    with pytest.raises(ValueError, match="coding"):
        Inflater("br")
    with pytest.raises(ValueError, match="header"):
        Inflater("gzip").feed(b"no gzip at all", 1000)
