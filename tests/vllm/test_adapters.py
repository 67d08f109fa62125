"""A world model's versions on a real vLLM: adapters that come and go under requests, and never share a prefix."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import safetensors.numpy

from obsspec.models.adapter import FORMAT, read_adapter
from obsspec.models.hf_folder import write_hf_folder
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.testing.vllm_server import NAME, Server, serve
from obsspec.train.live import LivePolicy, open_live_policy
from obsspec.train.newest import NewestVersion
from obsspec.train.publish import Publisher
from obsspec.train.versions import Version, VersionFolder
from obsspec.train.vllm_adapters import VllmAdapters
from obsspec.train.weights import VllmServing
from obsspec.values import Completion, EngineError, Sampling, Tokens
from tests.vllm.conftest import CPU_OPTIONS, OPTIONS, PYTHON
from tests.vllm.test_vllm import BLOCKS, SAME_LOGPROB, tokens

pytestmark = pytest.mark.anyio

RANK = 32
LORA = ("--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4", "--max-lora-rank", str(RANK))
LONG = Sampling(max_tokens=600, seed=5)  # no stop token: it is in flight for a while


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server, None, None]:
    """Of the base model, without any adapter."""
    base = write_hf_folder(tmp_path_factory.mktemp("base"))
    options = os.environ.get(OPTIONS, CPU_OPTIONS).split()
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    with serve(os.environ[PYTHON], base, tmp_path_factory.mktemp("vllm"), *options, *LORA, env=env) as running:
        yield running


@pytest.fixture
def versions(tmp_path: Path) -> VersionFolder:
    return VersionFolder(tmp_path / "versions", "world")


def publish(versions: VersionFolder, number: int, strength: float) -> Version:
    """The shipped adapter, so many times as strong."""
    content = read_adapter(shipped_adapter())
    writer: Any = safetensors.numpy  # its stubs are partly untyped

    def write(path: Path) -> None:
        facts = {"format": FORMAT, "rank": str(RANK), "alpha": str(content.scale * RANK * strength)}
        writer.save_file(dict(content.tensors), path, facts)

    return versions.publish(number, write, {})


@asynccontextmanager
async def serving(server: Server, versions: VersionFolder) -> AsyncGenerator[tuple[LivePolicy, VllmServing], None]:
    """Version 0."""
    first = publish(versions, 0, 1.0)
    vllm = VllmServing(server.url, versions.path.parent / "adapters", timeout_s=600)
    async with open_live_policy(vllm.open(first.adapter, first.name)) as live:
        yield live, vllm


async def loaded(server: Server) -> set[str]:
    listed = (await anyio.to_thread.run_sync(server.get, "/v1/models")).json()
    return {entry["id"] for entry in listed["data"]}


async def test_d12_e01_a_request_in_flight_ends_bit_for_bit_on_its_version_and_the_new_one_reads_no_cache_of_it(
    server: Server, versions: VersionFolder
) -> None:
    history = tokens(21, 2 * BLOCKS)
    async with serving(server, versions) as (live, vllm):
        old = live.weight_version
        undisturbed = await live.generate(tokens(20, 60), LONG)
        of_old = await live.generate(history, Sampling(max_tokens=24, seed=1))
        assert await cached(server, old, history) >= BLOCKS
        second = publish(versions, 1, 0.5)
        disturbed = await in_flight(live, lambda: vllm.open(second.adapter, second.name))
        assert disturbed == undisturbed  # token ids, logprobs and version
        assert disturbed.weight_version == old
        with anyio.fail_after(60):
            while old in await loaded(server):  # noqa: ASYNC110 - another process
                await anyio.sleep(0.1)
        assert await loaded(server) == {NAME, second.name}
        assert await cached(server, second.name, history) == 0
        of_new = await live.generate(history, Sampling(max_tokens=24, seed=1))
        assert of_new.weight_version == second.name
        assert of_new.logprobs != of_old.logprobs
        await anyio.to_thread.run_sync(server.post, "/reset_prefix_cache")
        fresh = await live.generate(history, Sampling(max_tokens=24, seed=1))
        assert fresh.token_ids == of_new.token_ids
        assert max(abs(x - y) for x, y in zip(fresh.logprobs, of_new.logprobs, strict=True)) < SAME_LOGPROB
    assert await loaded(server) == {NAME}
    assert list((versions.path.parent / "adapters").iterdir()) == []


async def in_flight(live: LivePolicy, opened: Callable[[], Any]) -> Completion:
    """A long generation, while which a version is published."""
    done: list[Completion] = []
    begun = anyio.Event()

    async def ask() -> None:
        done.append(await live.generate(tokens(20, 60), LONG, on_tokens=lambda _: begun.set()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await begun.wait()
        await live.publish(opened())
        assert len(live.versions) == 2, "it was over before the version was there"
    return done[0]


async def cached(server: Server, model: str, ids: Tokens) -> int:
    """Tokens of the prompt that the engine does not compute again."""

    def ask() -> int:
        body = {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0}
        usage = server.post("/v1/completions", body).json()["usage"]
        return (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    return await anyio.to_thread.run_sync(ask)


async def test_published_versions_reach_clients_that_know_only_the_url(
    server: Server, versions: VersionFolder, tmp_path: Path
) -> None:
    """As verl's workers do: they ask the server, which answers on what the publisher has loaded there."""
    adapters = VllmAdapters(server.url, tmp_path / "adapters", timeout_s=600)
    publisher = Publisher(versions, adapters, keep_s=0.0, say=lambda _: None)
    client = NewestVersion(server.url, NAME, poll_s=0.0)
    found: list[Completion] = []
    for number in range(3):
        if number:
            publish(versions, number, 1 / number)
        await publisher.once()
        found.append(await client.generate(tokens(22, 60), Sampling(max_tokens=24, seed=1)))
    newest = versions.latest()
    assert newest is not None
    assert [completion.weight_version for completion in found] == [NAME, publish(versions, 1, 1.0).name, newest.name]
    assert len({completion.logprobs for completion in found}) == 3
    assert await loaded(server) == {NAME, newest.name}
    await adapters.unload(newest.name)
    client_of_gone = NewestVersion(server.url, newest.name, role="nobody")
    with pytest.raises(EngineError, match=r"404|not exist"):
        await client_of_gone.generate((1,), Sampling(max_tokens=1))
