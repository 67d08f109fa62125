"""The client of the embedded engine against a scripted llama-server."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from obsspec.policy.llama import LlamaPolicy
from obsspec.values import EngineError, FinishReason, Priority, Sampling
from tests.policy.loopback import Loopback, Reply, Request, Script, loopback

pytestmark = pytest.mark.anyio

PROMPT = tuple(range(100, 110))
SAMPLING = Sampling(max_tokens=4, seed=3, stop_token_ids=(2,))


def token(number: int, token_id: int, logprob: Any = -0.5, **more: Any) -> dict[str, Any]:
    """The event of the `number`-th token, as llama-server words it."""
    return {
        "stop": False,
        "tokens": [token_id],
        "tokens_predicted": number,
        "completion_probabilities": [{"id": token_id, "logprob": logprob}],
    } | more


def progress(processed: int) -> dict[str, Any]:
    return {"stop": False, "tokens": [0], "tokens_predicted": 0, "prompt_progress": {"processed": processed}}


def final(stop_type: str) -> dict[str, Any]:
    return {"stop": True, "stop_type": stop_type}


@dataclass
class Server:
    """What a client knows of a running engine."""

    url: str
    snapshots: Path
    slots: int = 2
    context: int = 64
    weight_version: str = "old"
    died: str | None = None

    def failure(self) -> str | None:
        return self.died


@asynccontextmanager
async def serving(script: Script, **options: Any) -> AsyncGenerator[tuple[LlamaPolicy, Loopback, Server], None]:
    slots = options.pop("slots", 2)
    async with loopback(script) as http:
        server = Server(http.url, Path("/nonexistent"), slots)
        async with LlamaPolicy(server, **options) as policy:  # type: ignore[arg-type]
            yield policy, http, server


def answering(*events: Any) -> Script:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(*events)

    return script


STOPPED = (progress(10), token(1, 5), token(2, 2), final("eos"))


async def test_a_stream_becomes_a_completion_and_progress_is_no_token() -> None:
    seen: list[int] = []
    async with serving(answering(progress(0), *STOPPED)) as (policy, http, _):
        completion = await policy.generate(PROMPT, SAMPLING, on_tokens=seen.append)
        assert policy.busy == 0
    assert completion.token_ids == (5, 2)
    assert completion.logprobs == (-0.5, -0.5)
    assert completion.finish_reason is FinishReason.STOP
    assert completion.weight_version == "old"
    assert seen == [1, 2]
    body = http.requests[0].body
    assert body["prompt"] == list(PROMPT)
    assert (body["n_predict"], body["temperature"], body["seed"], body["n_probs"]) == (4, 1.0, 3, 1)
    assert body["samplers"] == ["temperature"]
    assert body["return_progress"]


async def test_top_p_is_sampled_after_the_temperature_and_no_seed_is_random() -> None:
    async with serving(answering(*STOPPED)) as (policy, http, _):
        await policy.generate(PROMPT, Sampling(max_tokens=4, top_p=0.9, seed=2**32 - 1))
    assert http.requests[0].body["samplers"] == ["temperature", "top_p"]
    assert http.requests[0].body["seed"] == 0


async def test_a08_the_stop_token_ends_the_request_at_once() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(token(1, 5), token(2, 2), token(3, 9))
        await anyio.sleep_forever()

    async with serving(script) as (policy, http, _):
        with anyio.fail_after(5):
            completion = await policy.generate(PROMPT, SAMPLING)
        await http.settled()
    assert completion.token_ids == (5, 2)


async def test_the_engines_own_end_is_a_cut_turn_when_other_stops_were_named() -> None:
    script = answering(token(1, 5), token(2, 0), final("eos"))
    async with serving(script) as (policy, _, _):
        assert (await policy.generate(PROMPT, SAMPLING)).finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("bad", [-math.inf, math.nan, None])
async def test_a10_a_logprob_that_is_no_number_is_an_error(bad: object) -> None:
    async with serving(answering(token(1, 5, bad), *STOPPED[2:])) as (policy, _, _):
        with pytest.raises(EngineError, match="logprob"):
            await policy.generate(PROMPT, SAMPLING)
        assert policy.busy == 0


@pytest.mark.parametrize(
    ("events", "message", "retryable"),
    [
        ([token(1, 5, completion_probabilities=[])], "logprobs for other tokens", True),
        ([token(1, 5, completion_probabilities=[{"id": 6, "logprob": -1}])], "logprobs for other tokens", True),
        ([token(1, 5), token(3, 6)], "withheld a token", False),
        ([token(1, 5), final("limit")], "1 of 4 tokens", False),
        ([token(1, 5)], "closed the connection", True),
        ([], "closed the connection", True),
        ([{"error": {"message": "out of memory"}}], "out of memory", True),
        (["{nonsense"], "something else", True),
        ([{"unknown": 1}], "something else", True),
    ],
)
async def test_h06_garbage_is_a_typed_error(events: list[Any], message: str, retryable: bool) -> None:
    async with serving(answering(*events)) as (policy, _, _):
        with pytest.raises(EngineError, match=message) as caught:
            await policy.generate(PROMPT, SAMPLING)
        assert policy.busy == 0
    assert caught.value.retryable is retryable


async def test_h06_an_error_status_is_a_typed_error() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(500, '{"error": {"message": "oops"}}')

    async with serving(script) as (policy, _, _):
        with pytest.raises(EngineError, match="500: oops"):
            await policy.generate(PROMPT, SAMPLING)


async def test_h06_a_hanging_engine_is_given_up_and_its_slot_is_free() -> None:
    async def script(_request: Request, _reply: Reply) -> None:
        await anyio.sleep_forever()

    async with serving(script, timeout_s=0.1) as (policy, http, _):
        with pytest.raises(EngineError, match="in time"):
            await policy.generate(PROMPT, SAMPLING)
        await http.settled()
        assert policy.busy == 0


async def test_h06_a_dead_engine_is_told_by_its_last_words() -> None:
    async with serving(answering()) as (policy, _, server):
        server.died = "llama-server ended with status 1: out of memory"
        with pytest.raises(EngineError, match="status 1: out of memory") as caught:
            await policy.generate(PROMPT, SAMPLING)
    assert not caught.value.retryable


@pytest.mark.parametrize(("length", "fits"), [(60, True), (61, False)])
async def test_f01_prompt_and_max_tokens_must_fit_the_context(length: int, fits: bool) -> None:
    async with serving(answering(*STOPPED)) as (policy, http, _):
        prompt = tuple(range(100, 100 + length))
        if fits:
            await policy.generate(prompt, SAMPLING)
            return
        with pytest.raises(EngineError, match="do not fit a context of 64") as caught:
            await policy.generate(prompt, SAMPLING)
    assert not caught.value.retryable
    assert not http.requests


async def test_what_can_not_be_generated_is_refused() -> None:
    async with serving(answering(*STOPPED)) as (policy, http, _):
        for prompt, sampling in [((), SAMPLING), (PROMPT, Sampling(0)), (PROMPT, Sampling(1, model="other"))]:
            with pytest.raises(EngineError) as caught:
                await policy.generate(prompt, sampling)
            assert not caught.value.retryable
    assert not http.requests


def slow(*, steps: int = 2) -> Script:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(progress(10))
        for number in range(1, steps):
            await anyio.sleep(0.002)
            await reply.events(token(number, 5))
        await reply.events(token(steps, 2), final("eos"))

    return script


async def test_d01_cancelling_hangs_up_and_frees_the_slot() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(progress(8))
        await anyio.sleep_forever()

    async with serving(script, slots=1) as (policy, http, _):
        for _ in range(3):
            with anyio.move_on_after(0.05):
                await policy.generate(PROMPT, SAMPLING, priority=Priority.SPECULATIVE)
            assert policy.busy == 0
        await http.settled()
    assert http.hung_up == 3


async def test_d01_a_request_cancelled_in_the_queue_is_never_sent() -> None:
    async with serving(slow(steps=4), slots=1) as (policy, http, _), anyio.create_task_group() as tasks:
        tasks.start_soon(policy.generate, PROMPT, SAMPLING)
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await policy.generate((*PROMPT, 1), SAMPLING)
    assert [request.body["prompt"] for request in http.requests] == [list(PROMPT)]


async def test_d05_a_cancel_after_the_last_token_disturbs_nobody() -> None:
    """The completion and the cancellation arrive in the same turn of the event loop, in either order."""
    async with serving(slow(steps=2), slots=1) as (policy, _, _):
        for _ in range(10):
            with anyio.CancelScope() as scope:

                def cut(tokens: int, scope: anyio.CancelScope = scope) -> None:
                    if tokens == 2:
                        scope.cancel()

                await policy.generate(PROMPT, SAMPLING, on_tokens=cut)
            assert policy.busy == 0
            completion = await policy.generate(PROMPT, SAMPLING)
            assert completion.token_ids == (5, 2)


async def test_d09_slots_and_connections_survive_mass_cancellation() -> None:
    async with serving(slow(steps=3), slots=10) as (policy, http, _):

        async def one(delay_s: float) -> None:
            with anyio.move_on_after(delay_s):
                await policy.generate(PROMPT, SAMPLING, priority=Priority.SPECULATIVE)

        for batch in range(10):
            async with anyio.create_task_group() as tasks:
                for worker in range(30):
                    tasks.start_soon(one, (batch * 30 + worker) % 40 * 0.0005)
        await http.settled()
        with anyio.fail_after(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(policy.generate, PROMPT, SAMPLING)
        assert policy.busy == 0
        assert policy._client._transport._pool.connections == []


async def test_e04_the_version_is_the_one_at_sending() -> None:
    async def script(_request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(token(1, 5))
        server.weight_version = "new"
        await reply.events(token(2, 2))

    async with serving(script) as (policy, _, server):
        assert (await policy.generate(PROMPT, SAMPLING)).weight_version == "old"
        assert policy.weight_version == "new"


async def test_a_continuation_goes_to_the_slot_of_its_prefix() -> None:
    async with serving(answering(*STOPPED)) as (policy, http, _):
        other = tuple(range(200, 240))
        await policy.generate(PROMPT, SAMPLING)
        await policy.generate(other, SAMPLING)
        await policy.generate((*PROMPT, 5, 2, 7), SAMPLING)
        await policy.generate((*other, 5, 2, 7), SAMPLING)
    slots = [request.body["id_slot"] for request in http.requests]
    assert slots == [0, 1, 0, 1]


async def test_a_prompt_cancelled_while_it_is_read_is_continued_where_it_was() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.status(200)
        await reply.events(progress(32))
        if len(request.body["prompt"]) > 40:
            await anyio.sleep_forever()
        await reply.events(*STOPPED[1:])

    long, other = tuple(range(200, 250)), tuple(range(300, 310))
    async with serving(script) as (policy, http, _):
        await policy.generate(other, SAMPLING)
        with anyio.move_on_after(0.2):
            await policy.generate(long, SAMPLING)
        await policy.generate((*long[:30], 7), SAMPLING)
    assert [request.body["id_slot"] for request in http.requests] == [0, 1, 1]


async def test_resetting_the_cache_erases_every_slot() -> None:
    async with serving(answering(*STOPPED)) as (policy, http, _):
        await policy.generate(PROMPT, SAMPLING)
        await policy.reset_cache()
        assert [request.path for request in http.requests[1:]] == ["/slots/0?action=erase", "/slots/1?action=erase"]
