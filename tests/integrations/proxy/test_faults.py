"""What goes wrong with a request that nobody has asked for is never shown; anything else is the client's to see."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import httpx2
import pytest

from obsspec.integrations.proxy.chat import ChatTurns
from obsspec.integrations.proxy.conversation import Conversation
from obsspec.integrations.proxy.work import Work
from obsspec.world.cascade import Cascade
from tests.integrations.proxy.engine import COMMANDS, TOOLS, Agent, Answer, Engine, Json, running, wait_for
from tests.policy.loopback import Reply, Request, loopback

pytestmark = pytest.mark.anyio
Fault = Callable[[Request, Reply], Awaitable[bool]]


def early(request: Request) -> bool:
    """Sent by the proxy before the client asked: with its own priority."""
    return request.body is not None and "priority" in request.body


def when_early(act: Callable[[Reply], Awaitable[None]], *, of: Callable[[Request], bool] = early) -> Fault:
    async def fault(request: Request, reply: Reply) -> bool:
        if of(request):
            await act(reply)
            return True
        return False

    return fault


async def refuse(reply: Reply) -> None:
    await reply.status(400, '{"error": {"message": "maximum context length"}}', content_type="application/json")


async def busy(reply: Reply) -> None:
    await reply.status(429, "later", retry_after="3")


async def hang_up(reply: Reply) -> None:
    pass


async def hang_up_in_the_middle(reply: Reply) -> None:
    head = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    await reply.raw(head + "8\r\ndata: {}\r\n")


async def nonsense(reply: Reply) -> None:
    await reply.status(200, "<html>", content_type="text/html")


async def say_error(reply: Reply) -> None:
    await reply.status(200, content_type="text/event-stream")
    await reply.events({"error": {"message": "out of memory"}}, "[DONE]")


ACTS = {"f01 overflow": refuse, "429": busy, "hang up": hang_up, "nonsense": nonsense, "error in stream": say_error}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("act", ACTS)
async def test_f01_d07_an_early_request_that_fails_is_never_shown(act: str, stream: bool) -> None:
    """And after some in a row the engine is left alone."""
    engine = Engine()
    async with running(engine, priorities=True) as (server, url, service):
        direct = await Agent(server.url, stream=stream).run()
        engine.fault = when_early(ACTS[act])
        for _ in range(2):
            assert await Agent(url, stream=stream).run() == direct
        figures = service.parts.figures
        assert 4 <= figures.started <= 6
        assert figures.claimed == figures.restarted  # asked for before it had failed
        assert figures.discarded + figures.restarted == figures.started


@pytest.mark.parametrize("stream", [False, True])
async def test_an_early_request_that_fails_after_it_was_asked_for_is_made_again(stream: bool) -> None:
    """As long as nothing of it was passed on."""

    async def slowly(reply: Reply) -> None:
        await anyio.sleep(0.2)
        await reply.status(503, "no")

    engine = Engine()
    async with running(engine, priorities=True) as (server, url, service):
        direct = await Agent(server.url, stream=stream).run()
        engine.fault = when_early(slowly)
        assert await Agent(url, stream=stream, tool_s=0.05).run() == direct
        assert service.parts.figures.restarted == service.parts.figures.claimed >= 4


async def test_an_early_answer_that_breaks_off_halfway_is_made_again_unless_it_was_passed_on() -> None:
    async def half(reply: Reply) -> None:
        await anyio.sleep(0.1)
        await reply.raw("HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        await anyio.sleep(0.1)

    engine = Engine()
    async with running(engine, priorities=True) as (server, url, service):
        direct = await Agent(server.url).run()
        engine.fault = when_early(half)
        assert await Agent(url, tool_s=0.15).run() == direct
        assert service.parts.figures.restarted >= 4


BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize("act", ["f01 overflow", "429", "nonsense"])
async def test_what_the_engine_says_to_the_client_is_passed_on_as_it_is(act: str) -> None:
    engine = Engine(fault=when_early(ACTS[act], of=lambda request: True))
    async with running(engine) as (server, url, _), httpx2.AsyncClient(trust_env=False, verify=False) as client:
        one, two = [await client.post(f"{at}/v1/chat/completions", json=BODY) for at in (server.url, url)]
        assert (one.status_code, one.content) == (two.status_code, two.content)
        assert one.headers.get("retry-after") == two.headers.get("retry-after")


async def test_an_engine_that_hangs_up_in_the_middle_does_so_for_the_client() -> None:
    engine = Engine(fault=when_early(hang_up_in_the_middle, of=lambda request: True))
    body = {**BODY, "stream": True}
    async with (
        running(engine) as (_, url, _s),
        httpx2.AsyncClient(trust_env=False, verify=False) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError, match="closed"):
            await answer.aread()


async def test_a_client_that_retries_after_an_error_goes_on_with_its_conversation() -> None:
    failed: list[str] = []

    async def fault(request: Request, reply: Reply) -> bool:
        name = json.dumps(request.body)
        if name in failed or early(request):
            return False
        failed.append(name)
        await busy(reply)
        return True

    engine = Engine()
    async with running(engine, priorities=True) as (server, url, service):
        direct = await Agent(server.url).run()
        engine.fault = fault
        assert await Agent(url, retries=2).run() == direct
        assert service.parts.figures.sessions_opened == 1
        assert service.parts.figures.claimed >= 3


@pytest.mark.parametrize("lingers_s", [0.0, 0.4])
async def test_a_client_that_acts_on_the_last_event_goes_on_with_its_conversation(lingers_s: float) -> None:
    """It neither waits for the end of the body nor for the connection, and its next request comes at once."""

    class Hasty(Agent):
        async def post(self, client: httpx2.AsyncClient, body: Json) -> Answer:
            async with client.stream("POST", f"{self.url}/v1/chat/completions", json=body) as response:
                data = b""
                async for chunk in response.aiter_raw():
                    data += chunk
                    if b"[DONE]" in data:
                        break
            return Answer(response.status_code, (), data)

    async with running(Engine(lingers_s=lingers_s)) as (server, url, service):
        direct = await Hasty(server.url, stream=True, tool_s=0).run()
        assert await Hasty(url, stream=True, tool_s=0).run() == direct
        assert await Hasty(url, stream=True).run() == direct
        assert service.parts.figures.sessions_opened == 2
        assert service.parts.figures.client_gone == 0
        assert service.parts.figures.claimed >= 4


async def test_a_conversation_that_the_proxy_loses_track_of_takes_no_other_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault of our own, in the middle of things: its client sees an error at worst, and no one else anything."""
    finish, broken = Conversation._finish, list[str]()

    def faulty(self: Conversation, node: int, work: Work, *, good: bool) -> None:
        if "odd" in work.key.sampling.model:
            broken.append("odd")
            raise RuntimeError("a fault of our own")
        finish(self, node, work, good=good)

    monkeypatch.setattr(Conversation, "_finish", faulty)
    async with running(Engine()) as (server, url, service):
        direct = await Agent(server.url).run()
        odd = {"model": "odd", "seed": 1, "tools": TOOLS}
        assert await Agent(url, fields=odd).run() == await Agent(server.url, fields=odd).run()
        assert await Agent(url).run() == direct
        assert service.parts.figures.confused == len(broken) == 7
        assert service.parts.figures.claimed > 0


@pytest.mark.parametrize(("of", "name"), [(ChatTurns, "follows"), (ChatTurns, "observed"), (Cascade, "learn")])
async def test_a_request_that_confuses_the_proxy_is_passed_on(
    of: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(self: object, *_: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(of, name, faulty)
    async with running(Engine()) as (server, url, service):
        direct = await Agent(server.url).run()
        assert await Agent(url).run() == direct
        assert service.parts.figures.confused > 0


# Cancelling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["queued", "prefill", "decode"])
@pytest.mark.parametrize("whose", ["the client's", "an early one"])
async def test_d01_what_is_not_wanted_any_more_is_ended_at_the_engine(stage: str, whose: str) -> None:
    """By closing its connection, in whatever stage it is."""
    engine = Engine(("cat nothing", "date", "ls x"))
    stuck = anyio.Event()

    async def stay(reply: Reply) -> None:
        if stage != "queued":
            await reply.status(200, content_type="text/event-stream")
        if stage == "decode":
            await reply.events({"choices": [{"index": 0, "delta": {"content": "I"}, "finish_reason": None}]})
        stuck.set()
        await anyio.sleep(30)

    async with running(engine, priorities=True) as (server, url, service):
        await Agent(url, stream=True).run()
        engine.fault = when_early(stay, of=early if whose == "an early one" else lambda request: True)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Agent(url, stream=True, tool_s=5).run)
                await stuck.wait()
                if whose == "an early one":  # the client goes on with another request than was expected
                    await wait_for(lambda: service.parts.limits.branches == 1)
                    service.drain()
                scope.cancel()
        await server.settled()
        assert service.parts.limits.branches == 0
        await wait_for(lambda: service.parts.upstream.open == 0)


async def test_d01_d03_an_engine_that_ignores_a_closed_connection_holds_nobody_up() -> None:
    """The proxy has closed it and goes on; what the engine makes of that is out of its hands."""
    release = anyio.Event()

    async def deaf(reply: Reply) -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    engine = Engine()
    async with running(engine, priorities=True) as (server, url, service):
        direct = await Agent(server.url).run()
        engine.fault = when_early(deaf)
        assert await Agent(url, tool=lambda files, command: f"{random.random()}").run() != direct
        assert service.parts.limits.branches == 0
        assert service.parts.upstream.open == 0
        release.set()


async def test_d02_of_several_early_requests_the_right_one_survives() -> None:
    """Each has a connection of its own."""
    engine = Engine(("cat a", "cat b", "cat c", "cat d"), first_s=0.1)
    async with running(engine, breadth=3, depth=2) as (server, url, service):
        for number in range(6):
            tool = partial(_changing, number)
            direct = await Agent(server.url, tool=tool).run()
            assert await Agent(url, tool=tool, tool_s=0.1).run() == direct
        assert service.parts.figures.claimed > 0
        assert service.parts.figures.started > service.parts.figures.claimed


def _changing(number: int, files: dict[str, str], command: str) -> str:
    return f"{command} says {number % 3}\n"


async def test_d05_a_result_that_comes_as_the_early_answer_ends_is_answered_once() -> None:
    """Tools that take as long as the engine: the order of the two is chance."""
    engine = Engine(first_s=0.03)
    async with running(engine) as (server, url, service):
        direct = await Agent(server.url, tool_s=0).run()
        for _ in range(6):
            assert await Agent(url, tool_s=0.025 + random.random() * 0.02).run() == direct
        assert service.parts.figures.claimed > 10


async def test_d09_thousands_of_ended_requests_leave_the_pool_of_connections_empty() -> None:
    """Clients leave at random for a while; afterwards everybody is served at once."""
    engine = Engine(("cat nothing",) * 6, first_s=0.005)
    limits = httpx2.Limits(max_connections=None)
    async with (
        running(engine) as (_, url, service),
        httpx2.AsyncClient(trust_env=False, verify=False, limits=limits) as client,
    ):
        await Agent(url).run()
        with anyio.move_on_after(2):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(_leave_at_random, client, url, number)
        with anyio.fail_after(3):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(Agent(url, task=f"{number}", turns=1, client=client).run)
        service.drain()
        await wait_for(lambda: service.parts.upstream.open == 0)
        pool: Any = service.parts.upstream._kept._transport._pool  # type: ignore[attr-defined]
        assert not [c for c in pool.connections if not c.is_idle()]
        assert service.parts.figures.client_gone > 10
        assert service.parts.figures.discarded > 10


async def _leave_at_random(client: httpx2.AsyncClient, url: str, number: int) -> None:
    draw = random.Random(number)
    while True:
        with anyio.move_on_after(draw.random() * 0.6):
            await Agent(url, task=f"{number} {draw.random()}", tool_s=0.01, client=client).run()


async def test_d11_a_group_that_is_cancelled_is_cancelled_as_a_whole() -> None:
    engine = Engine(first_s=0.05)
    async with running(engine) as (server, url, service):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(Agent(url, fields={"model": "m", "seed": number, "tools": TOOLS}).run)
            await wait_for(lambda: service.parts.figures.claimed > 4)
            tasks.cancel_scope.cancel()
        service.drain()
        await wait_for(lambda: service.parts.upstream.open == 0)
        await server.settled()


# World models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["down", "500", "hangs", "endless", "nonsense"])
async def test_h06_a_world_model_that_fails_or_hangs_never_delays(kind: str) -> None:
    async def world(request: Request, reply: Reply) -> bool:
        if request.path.endswith("/models"):
            return False
        match kind:
            case "500":
                await reply.status(500, "no")
            case "hangs":
                await anyio.sleep(30)
            case "endless":
                await reply.status(200, content_type="application/json")
                while True:
                    await reply.raw("x" * 65536)
            case _:
                await reply.status(200, "[]")
        return True

    engine = Engine(("date", "date -u", "uptime", "ps"))
    async with loopback(Engine(fault=world)) as world_model:
        where = "http://127.0.0.1:9" if kind == "down" else world_model.url
        async with running(engine, world_model=where, predict_s=0.5) as (server, url, service):
            agent: dict[str, Any] = {"tool": lambda files, command: f"{len(command)} {command}\n", "tool_s": 0.03}
            direct = await Agent(server.url, **agent).run()
            with anyio.fail_after(10):
                for _ in range(3):
                    assert await Agent(url, **agent).run() == direct
            assert service.parts.figures.asked == 15


async def test_a_language_model_predicts_what_nothing_cheaper_can() -> None:
    shown: list[str] = []

    async def world(request: Request, reply: Reply) -> bool:
        if request.path.endswith("/models"):
            return False
        shown.append(request.body["prompt"])
        choice = {"index": 0, "text": "42 is it", "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.01]}}
        await reply.status(200, json.dumps({"choices": [choice]}))
        return True

    engine = Engine((COMMANDS[0], "ask a", "ask b"))
    async with loopback(Engine(fault=world)) as model, running(engine, world_model=model.url) as (server, url, service):
        agent: dict[str, Any] = {"tool": lambda files, command: "42 is it"}
        direct = await Agent(server.url, **agent).run()
        assert await Agent(url, **agent).run() == direct
        assert "lm" in service.parts.figures.by_source
        assert service.parts.figures.claimed >= 1
    assert shown[0].startswith("<|im_start|>user\ndo it<|im_end|>\n<|im_start|>assistant\n<tool_call>\n")
    assert shown[0].endswith("<|im_end|>\n<|im_start|>user\n<tool_response>\n")
