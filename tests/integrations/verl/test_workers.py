"""verl's agent-loop worker in this process, so that a test can cancel it; servers and balancer are actors as always."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from tests.integrations.verl.batches import assert_equal, totals
from tests.integrations.verl.cluster import SEQUENTIAL, Servers, batch_of, configuration

pytestmark = [pytest.mark.verl, pytest.mark.anyio, pytest.mark.timeout(600)]

PROMPTS = ("Look around.", "List the files, please.")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class StrictBalancer(GlobalRequestLoadBalancer):
    """One that keeps books by name, as routers that look at the content do: each name may be taken once at a time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.books: Counter[str] = Counter()
        self.names: list[str] = []

    def acquire_server(self, request_id: str) -> Any:
        self.books[request_id] += 1
        assert self.books[request_id] == 1, f"{request_id} is taken"
        self.names.append(request_id)
        return super().acquire_server(request_id)

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        assert request_id is not None
        self.books[request_id] -= 1
        super().release_server(server_id, request_id)

    def require_release_fields(self) -> list[str]:
        return ["request_id"]

    def taken(self) -> list[str]:
        return [name for name, count in self.books.items() if count]


@pytest.fixture(scope="module")
def config(running: None, world_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    del running
    language = {"world_model_url": world_model.url, "world_model_name": "oracle", "rules": False, "memory": False}
    chain = {**language, "gate": False, "depth": 3, "world_model_max_tokens": 96}
    loops = {"chain": chain, "cancelled": {**chain, "predict_timeout_s": 20}}  # which shares nothing with the other
    return configuration(tmp_path_factory.mktemp("workers"), loops)


@pytest.fixture(scope="module")
def servers(config: Any) -> Servers:
    return Servers.start(config)


async def test_d11_a_cancelled_rollout_leaves_nothing_at_servers_and_balancer(
    config: Any, servers: Servers, oracle: Any
) -> None:
    worker = AgentLoopWorker(config, LLMServerClient(config, load_balancer_handle=servers.balancer))
    ends: Counter[str] = Counter()
    for mode, seconds in (("right", 0.15), ("right", 0.5), ("wrong", 0.7), ("right", 0.9), ("hang", 1.1)):
        oracle.mode = mode
        task = asyncio.create_task(worker.generate_sequences(batch_of("cancelled", PROMPTS)))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen = await asyncio.to_thread(servers.seen)
        ends.update(request.end for request in seen)
    assert ends["cancelled"] >= 5
    assert ends["running"] == 0


async def test_a_call_given_up_while_it_waits_for_a_server_is_not_counted(config: Any, servers: Servers) -> None:
    from obsspec.integrations.verl.client import Call, calling, ending_at_the_engine

    client = ending_at_the_engine(LLMServerClient(config, load_balancer_handle=servers.balancer))

    async def call(name: str) -> None:
        with calling(Call(name)):
            await client.generate(name, prompt_ids=[5, 6], sampling_params={})

    for number in range(20):
        task = asyncio.create_task(call(f"given-up-{number}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.to_thread(servers.seen)


async def test_g01_names_and_seeds_are_stable_under_full_determinism(config: Any, oracle: Any) -> None:
    """verl hands the rollout's own name to the engine then, so a branch needs another, and its replica's seed."""
    del oracle
    config = config.copy()
    config.actor_rollout_ref.rollout.full_determinism = True
    servers = Servers.start(config, full_determinism=True)
    worker = AgentLoopWorker(config, LLMServerClient(config, load_balancer_handle=servers.balancer))
    expected = await worker.generate_sequences(_numbered(batch_of(SEQUENTIAL, PROMPTS)))
    plain = await asyncio.to_thread(servers.seen)
    found = await worker.generate_sequences(_numbered(batch_of("chain", PROMPTS)))
    seen = await asyncio.to_thread(servers.seen)
    assert_equal(expected, found)
    assert totals(found)["match"] > 0
    assert {request.request_id for request in plain} == {"det-0", "det-1"}
    committed = {request.request_id for request in seen if not request.priority}
    assert committed <= {"det-0", "det-1"}
    branches = [request.request_id for request in seen if request.priority]
    assert len(set(branches)) == len(branches)
    assert all(name.startswith(("det-0-branch", "det-1-branch")) for name in branches)


async def test_balancers_that_keep_books_by_name_see_each_name_once(config: Any, oracle: Any) -> None:
    oracle.mode = "right"
    servers = Servers.start(config, load_balancer_cls=StrictBalancer)
    worker = AgentLoopWorker(config, LLMServerClient(config, load_balancer_handle=servers.balancer))
    expected = await worker.generate_sequences(batch_of(SEQUENTIAL, PROMPTS))
    found = await worker.generate_sequences(batch_of("chain", PROMPTS))
    assert_equal(expected, found)
    await asyncio.to_thread(servers.seen)
    assert ray.get(servers.balancer.taken.remote()) == []


async def test_d07_clients_that_resume_aborted_requests_are_sped_up_as_they_are(
    config: Any, servers: Servers, oracle: Any
) -> None:
    oracle.mode = "right"
    worker = AgentLoopWorker(config, FullyAsyncLLMServerClient(config, load_balancer_handle=servers.balancer))
    expected = await worker.generate_sequences(batch_of(SEQUENTIAL, PROMPTS))
    found = await worker.generate_sequences(batch_of("chain", PROMPTS))
    assert_equal(expected, found)
    assert totals(found)["match"] > 0
    await asyncio.to_thread(servers.seen)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"dept": 2}, "agent loop field dept: unknown"),
        ({"depth": "2"}, "agent loop field depth: must be a int"),
    ],
)
async def test_a_wrong_field_is_named(
    config: Any, servers: Servers, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    wrong = configuration(tmp_path, {"wrong": fields})
    worker = AgentLoopWorker(wrong, LLMServerClient(config, load_balancer_handle=servers.balancer))
    with pytest.raises(Exception, match=sentence):
        await worker.generate_sequences(batch_of("wrong", PROMPTS[:1]))


def _numbered(batch: Any) -> Any:
    """As verl's manager does, so that rollouts have names under full determinism."""
    import numpy as np

    batch.non_tensor_batch["priority"] = np.arange(len(batch), dtype=np.int64)
    return batch
