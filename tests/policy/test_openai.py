"""The token endpoint client against a scripted vLLM: good answers, bad answers, and none."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.policy.transport import BusyError
from obsspec.values import ConfigError, EngineError, FinishReason, Priority, Sampling
from tests.policy.loopback import Loopback, Reply, Request, Script, loopback

pytestmark = pytest.mark.anyio

PROMPT = (11, 12, 13)
SAMPLING = Sampling(max_tokens=4, temperature=0.7, seed=3, stop_token_ids=(2,))


def chunk(ids: list[int] | None, logprobs: list[Any] | None = None, reason: str | None = None, **more: Any) -> Any:
    if logprobs is None and ids is not None:
        logprobs = [-0.5] * len(ids)
    choice = {
        "index": 0,
        "text": "" if ids == [] else "x",
        "token_ids": ids,
        "logprobs": {"token_logprobs": logprobs},
        "finish_reason": reason,
    }
    return {"choices": [choice | more.pop("choice", {})]} | more


def answering(*events: Any) -> Script:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(*events)

    return script


@asynccontextmanager
async def serving(script: Script, **options: Any) -> AsyncGenerator[tuple[TokenEndpointPolicy, Loopback], None]:
    async with loopback(script) as server, TokenEndpointPolicy(server.url, "m", **options) as policy:
        yield policy, server


async def test_a_streamed_answer_becomes_a_completion() -> None:
    script = answering(chunk([5]), chunk([6, 2], reason="stop"), {"choices": [], "usage": {}}, "[DONE]")
    async with serving(script, weight_version="7") as (policy, server):
        seen: list[int] = []
        completion = await policy.generate(PROMPT, SAMPLING, on_tokens=seen.append)
    assert completion.token_ids == (5, 6, 2)
    assert completion.logprobs == (-0.5, -0.5, -0.5)
    assert completion.finish_reason is FinishReason.STOP
    assert completion.weight_version == "7"
    assert completion.timing is not None
    assert completion.timing.sent_s <= completion.timing.first_s <= completion.timing.last_s
    assert seen == [1, 3]
    assert server.requests[0].path == "/v1/completions"


async def test_the_request_says_everything_that_may_change_what_is_sampled() -> None:
    async with serving(answering(chunk([2], reason="stop"))) as (policy, server):
        await policy.generate(PROMPT, SAMPLING)
        await policy.generate(PROMPT, Sampling(max_tokens=4, top_p=0.9, model="adapter"))
    first, second = (request.body for request in server.requests)
    expected = {
        "model": "m",
        "prompt": [11, 12, 13],
        "max_tokens": 4,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": 3,
        "stop_token_ids": [2],
        "return_token_ids": True,
        "stream": True,
    }
    assert first | expected == first
    assert "priority" not in first
    assert (second["model"], second["top_p"], second["stop_token_ids"]) == ("adapter", 0.9, [])


async def test_priorities_are_sent_to_servers_that_know_them() -> None:
    async with serving(answering(chunk([2], reason="stop")), priorities=True, api_key="k") as (policy, server):
        await policy.generate(PROMPT, SAMPLING)
        await policy.generate(PROMPT, SAMPLING, priority=Priority.SPECULATIVE)
    assert [request.body["priority"] for request in server.requests] == [0, 1]
    assert server.requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize("knows", [True, False])
async def test_whether_a_server_knows_priorities_is_found_out(knows: bool) -> None:
    """vLLM with the default policy refuses every request that has one."""

    async def script(request: Request, reply: Reply) -> None:
        if request.path == "/v1/models":
            await reply.status(200, '{"data": [{"id": "m"}]}')
        elif not knows and request.body.get("priority"):
            await reply.status(400, '{"error": {"message": "Priority scheduling is not enabled."}}')
        else:
            await reply.status(200)
            await reply.events(chunk([2], reason="stop"))

    async with serving(script) as (policy, server):
        await policy.check()
        await policy.generate(PROMPT, SAMPLING, priority=Priority.SPECULATIVE)
    assert server.requests[-1].body.get("priority") == (1 if knows else None)


async def test_a08_a_server_that_ignores_the_stop_is_cut_and_hung_up_on() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(chunk([5]), chunk([2, 7]))
        await anyio.sleep_forever()

    async with serving(script) as (policy, server):
        with anyio.fail_after(5):
            completion = await policy.generate(PROMPT, SAMPLING)
            await server.settled()
    assert completion.token_ids == (5, 2)
    assert completion.finish_reason is FinishReason.STOP


async def test_a08_text_cut_at_a_stop_string_does_not_shorten_the_ids() -> None:
    script = answering(chunk([5, 6, 2], reason="stop", choice={"text": "he", "stop_reason": "llo"}))
    async with serving(script) as (policy, _):
        assert (await policy.generate(PROMPT, SAMPLING)).token_ids == (5, 6, 2)


async def test_cumulative_and_delta_streams_give_the_same() -> None:
    def used(count: int) -> dict[str, Any]:
        return {"usage": {"completion_tokens": count}}

    deltas = answering(chunk([5], **used(1)), chunk([5], **used(2)), chunk([7, 2], reason="stop", **used(4)))
    totals = answering(chunk([5], **used(1)), chunk([5, 5], **used(2)), chunk([5, 5, 7, 2], reason="stop", **used(4)))
    for script in (deltas, totals):
        async with serving(script) as (policy, _):
            assert (await policy.generate(PROMPT, SAMPLING)).token_ids == (5, 5, 7, 2)


async def test_a_count_that_does_not_add_up_is_an_error() -> None:
    script = answering(chunk([5], usage={"completion_tokens": 1}), chunk([6], usage={"completion_tokens": 3}))
    async with serving(script) as (policy, _):
        with pytest.raises(EngineError, match="counted 3 tokens"):
            await policy.generate(PROMPT, SAMPLING)


@pytest.mark.parametrize("bad", [-math.inf, math.nan, None, -9999.0])
async def test_a10_a_logprob_that_is_no_number_is_an_error(bad: object) -> None:
    async with serving(answering(chunk([5, 2], [-0.5, bad], "stop"))) as (policy, _):
        with pytest.raises(EngineError, match="logprob"):
            await policy.generate(PROMPT, SAMPLING)


@pytest.mark.parametrize(
    "event", [chunk([5, 2], [-0.5], "stop"), chunk([5, 2], reason="stop", choice={"logprobs": None})]
)
async def test_a10_missing_logprobs_are_an_error(event: object) -> None:
    async with serving(answering(event)) as (policy, _):
        with pytest.raises(EngineError, match="logprobs for 2 tokens"):
            await policy.generate(PROMPT, SAMPLING)


@pytest.mark.parametrize(
    ("events", "message", "retryable"),
    [
        ([chunk([5], reason="abort")], "'abort'", True),
        ([chunk([5])], "closed the connection", True),  # finish_reason null to the end
        ([], "closed the connection", True),
        ([{"error": {"message": "engine dead"}}], "engine dead", True),
        (["{nonsense"], "something else", True),
        ([{"choices": "?"}], "something else", True),
        ([[1, 2]], "something else", True),
        ([chunk(None, choice={"text": "hi"})], "token ids", False),
        ([chunk([5], choice={"prompt_token_ids": [11, 12]})], "prompt's token ids", False),
        ([chunk([5], reason="length")], "1 of 4 tokens", False),
        ([chunk([], reason="length")], "0 of 4 tokens", False),
    ],
)
async def test_h06_garbage_is_a_typed_error(events: list[Any], message: str, retryable: bool) -> None:
    async with serving(answering(*events)) as (policy, _):
        with pytest.raises(EngineError, match=message) as caught:
            await policy.generate(PROMPT, SAMPLING)
    assert caught.value.retryable is retryable


async def test_f03_an_empty_answer_is_an_empty_completion() -> None:
    async with serving(answering(chunk([], reason="stop"))) as (policy, _):
        completion = await policy.generate(PROMPT, SAMPLING)
    assert completion.token_ids == ()
    assert completion.finish_reason is FinishReason.STOP


def refusing(status: int, body: str = "", **headers: str) -> Script:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(status, body, **headers)

    return script


async def test_f01_a_context_overflow_is_an_error_that_no_retry_helps() -> None:
    body = '{"error": {"message": "maximum context length is 2048 tokens", "type": "BadRequestError"}}'
    async with serving(refusing(400, body)) as (policy, _):
        with pytest.raises(EngineError, match="400: maximum context length is 2048 tokens") as caught:
            await policy.generate(PROMPT, SAMPLING)
    assert not caught.value.retryable


async def test_h06_a_server_error_may_be_retried() -> None:
    async with serving(refusing(500, "<html>oops " + "x" * 1000)) as (policy, _):
        with pytest.raises(EngineError, match="500: <html>oops") as caught:
            await policy.generate(PROMPT, SAMPLING)
    assert caught.value.retryable
    assert len(str(caught.value)) < 400


async def test_h06_a_busy_server_says_when_to_come_back() -> None:
    async with serving(refusing(429, retry_after="7")) as (policy, _):
        with pytest.raises(BusyError) as caught:
            await policy.generate(PROMPT, SAMPLING)
    assert caught.value.retry_after_s == 7.0


async def test_h06_silence_is_an_error_after_the_time_out() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(chunk([5]))
        await anyio.sleep_forever()

    async with serving(script, timeout_s=0.2) as (policy, server):
        with pytest.raises(EngineError, match="did not answer in time"):
            await policy.generate(PROMPT, SAMPLING)
        await server.settled()


async def test_h06_an_endless_event_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("obsspec.policy.transport._LINE_LIMIT", 1000)

    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        while True:
            await reply.raw("x" * 100)

    async with serving(script) as (policy, server):
        with pytest.raises(EngineError, match="without end"):
            await policy.generate(PROMPT, SAMPLING)
        await server.settled()


async def test_h06_an_unreachable_engine_is_a_typed_error() -> None:
    async with loopback(answering()) as server:
        url = server.url
    async with TokenEndpointPolicy(url, "m") as policy:
        with pytest.raises(EngineError, match="ConnectError"):
            await policy.generate(PROMPT, SAMPLING)
        with pytest.raises(ConfigError, match="not reachable"):
            await policy.check()


async def test_the_check_names_the_models_there_are() -> None:
    for body, message in [
        ('{"data": [{"id": "m"}]}', ""),
        ('{"data": [{"id": "n"}]}', "serves n, not m"),
        ("?", "list"),
    ]:
        async with serving(refusing(200, body)) as (policy, server):
            if message:
                with pytest.raises(ConfigError, match=message):
                    await policy.check()
            else:
                await policy.check()
            assert server.requests[0].path == "/v1/models"


async def test_u2028_inside_a_string_does_not_break_an_event() -> None:
    script = answering(chunk([5], choice={"text": "a\u2028b\u0085"}), chunk([2], reason="stop"))
    async with serving(script) as (policy, _):
        assert (await policy.generate(PROMPT, SAMPLING)).token_ids == (5, 2)


def stuck(*events: Any) -> Script:
    async def script(_request: Request, reply: Reply) -> None:
        if events:
            await reply.status(200)
            await reply.events(*events)
        await anyio.sleep_forever()

    return script


@pytest.mark.parametrize("script", [stuck(), stuck(chunk([5]))], ids=["before the first token", "in decode"])
async def test_d01_cancelling_hangs_up(script: Script) -> None:
    async with serving(script) as (policy, server):
        with anyio.move_on_after(0.5) as scope:
            await policy.generate(PROMPT, SAMPLING)
        assert scope.cancelled_caught
        await server.settled()
    assert server.hung_up == 1


async def test_d02_cancelled_siblings_do_not_disturb_a_survivor() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(chunk([5]))
        if request.body["seed"]:
            await anyio.sleep_forever()
        await anyio.sleep(0.3)
        await reply.events(chunk([2], reason="stop"))

    async with serving(script) as (policy, server):
        with anyio.fail_after(5):
            async with anyio.create_task_group() as survivor:
                survivor.start_soon(policy.generate, PROMPT, Sampling(max_tokens=4, seed=0, stop_token_ids=(2,)))
                async with anyio.create_task_group() as tasks:
                    for seed in (1, 2, 3):
                        tasks.start_soon(policy.generate, PROMPT, Sampling(max_tokens=4, seed=seed))
                    while len(server.requests) < 4:  # noqa: ASYNC110 - another task grows it
                        await anyio.sleep(0.01)
                    tasks.cancel_scope.cancel()
        await server.settled()
    assert server.hung_up == 3


async def test_d09_the_pool_survives_mass_cancellation() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await anyio.sleep(0.002)
        await reply.events(chunk([5]))
        await anyio.sleep(0.002)
        await reply.events(chunk([2], reason="stop"))

    async with serving(script, connections=10) as (policy, server):
        for batch in range(12):
            async with anyio.create_task_group() as tasks:
                for worker in range(30):
                    tasks.start_soon(_cancelled_after, (batch * 30 + worker) % 40 * 0.0005, policy)
        await server.settled()
        with anyio.fail_after(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(policy.generate, PROMPT, SAMPLING)
        assert policy._client._transport._pool.connections == []


async def _cancelled_after(delay_s: float, policy: TokenEndpointPolicy) -> None:
    with anyio.move_on_after(delay_s):
        await policy.generate(PROMPT, SAMPLING)


async def test_e04_the_version_is_the_one_at_sending() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(chunk([5]))
        policy.weight_version = "new"
        await reply.events(chunk([2], reason="stop"))

    async with serving(script, weight_version="old") as (policy, _):
        assert (await policy.generate(PROMPT, SAMPLING)).weight_version == "old"
        assert policy.weight_version == "new"


async def test_e05_concurrent_calls_share_nothing() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.status(200)
        await anyio.sleep(0.01)
        await reply.events(chunk([request.body["seed"], 2], reason="stop"))

    answers: dict[int, tuple[int, ...]] = {}

    async def one(seed: int) -> None:
        sampling = Sampling(max_tokens=2 + seed, seed=seed, stop_token_ids=(2,))
        answers[seed] = (await policy.generate((seed,), sampling)).token_ids
        assert sampling == Sampling(max_tokens=2 + seed, seed=seed, stop_token_ids=(2,))

    async with serving(script) as (policy, server), anyio.create_task_group() as tasks:
        for seed in range(10, 18):
            tasks.start_soon(one, seed)
    assert answers == {seed: (seed, 2) for seed in range(10, 18)}
    sent = {r.body["seed"]: (r.body["prompt"], r.body["max_tokens"]) for r in server.requests}
    assert sent == {seed: ([seed], 2 + seed) for seed in range(10, 18)}
