"""How busy an engine by URL is: counted by ourselves, and asked of the engine where it can say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.policy import engine_load
from obsspec.policy.engine_load import read_gauges
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.values import EngineError, Sampling
from tests.policy.loopback import Reply, Request, loopback
from tests.policy.test_openai import chunk

PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/a model {x}"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4 1719394
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting 1
vllm:num_requests_waiting_by_reason{engine="0"} 90.0
vllm:num_requests_running{engine="2"} NaN
vllm:num_requests_running{engine="3"}
vllm:num_preemptions_total{engine="0"} 50.0
"""


def test_running_and_waiting_requests_of_all_engines_count() -> None:
    assert read_gauges(PAGE) == 3 + 4 + 2 + 1


@given(st.text() | st.text('vllm:num_requests_running{}\n 1.e+-"=NaNinf\u2028', max_size=80))
def test_whatever_is_on_the_page_is_a_count(page: str) -> None:
    assert read_gauges(page) >= 0
    assert read_gauges(f"vllm:num_requests_running{page}") >= 0


def test_counts_beyond_all_bounds_are_counts() -> None:
    assert read_gauges("vllm:num_requests_running 1e308\n" * 20) == 20 * 10**9


class Engine:
    """Holds its requests until it is told; its page says what the test wants."""

    def __init__(self, page: Callable[[Reply], Awaitable[None]]) -> None:
        self.asked = 0
        self.go_on = anyio.Event()
        self._page = page

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.path == "/metrics":
            self.asked += 1
            await self._page(reply)
            return
        await self.go_on.wait()
        await reply.status(200)
        await reply.events(chunk([2], reason="stop"))


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - what changes is a count
            await anyio.sleep(0.005)


async def generate(policy: TokenEndpointPolicy) -> None:
    await policy.generate((1,), Sampling(4, stop_token_ids=(2,)))


@pytest.mark.anyio
async def test_requests_of_others_count_beside_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_load, "EVERY_S", 0.01)
    running = 7

    async def page(reply: Reply) -> None:
        await reply.status(200, f'vllm:num_requests_running{{engine="0"}} {running}\n')

    engine = Engine(page)
    async with loopback(engine, metrics=True) as server, TokenEndpointPolicy(server.url, "m") as policy:
        await until(lambda: policy.busy == 7)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(generate, policy)
            await until(lambda: policy.busy == 7)  # three of the seven are ours, as far as can be told
            running = 0
            await until(lambda: policy.busy == 3)
            engine.go_on.set()
        assert policy.busy == 0
    asked = engine.asked
    await anyio.sleep(0.05)
    assert engine.asked == asked, "nothing is asked after the context"


async def _missing(reply: Reply) -> None:
    await reply.status(404, "no such page")


async def _garbage(reply: Reply) -> None:
    await reply.raw("nonsense\r\n\r\n")


async def _silent(reply: Reply) -> None:
    await anyio.sleep_forever()


@pytest.mark.anyio
@pytest.mark.parametrize("page", [_missing, _garbage, _silent])
async def test_an_engine_that_does_not_say_is_as_busy_as_we_make_it(
    page: Callable[[Reply], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_load, "EVERY_S", 0.01)
    monkeypatch.setattr(engine_load, "TIMEOUT_S", 0.05)
    engine = Engine(page)
    async with loopback(engine, metrics=True) as server, TokenEndpointPolicy(server.url, "m") as policy:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(generate, policy)
            await until(lambda: engine.asked >= 3)
            assert policy.busy == 1
            engine.go_on.set()
        assert policy.busy == 0


async def fail_inside(url: str, engine: Engine) -> None:
    async with TokenEndpointPolicy(url, "m"):
        await until(lambda: engine.asked == 1)
        raise EngineError("planned")


@pytest.mark.anyio
async def test_an_error_inside_the_context_stays_as_it_is_and_leaves_nothing_running() -> None:
    engine = Engine(_silent)
    async with loopback(engine, metrics=True) as server:
        with pytest.raises(EngineError, match="planned"):
            await fail_inside(server.url, engine)
        await server.settled()
        with anyio.move_on_after(0.2) as scope:
            async with TokenEndpointPolicy(server.url, "m") as policy:
                await generate(policy)
        assert scope.cancelled_caught
        assert policy.busy == 0
        await server.settled()
