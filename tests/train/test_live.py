"""Weights change under running requests: nobody is aborted, every completion says who sampled it, nothing is left."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from obsspec.protocols import OnTokens, Policy
from obsspec.train.live import LivePolicy, open_live_policy
from obsspec.train.weights import VllmServing
from obsspec.values import Completion, ConfigError, EngineError, FinishReason, Priority, Sampling, Tokens
from tests.models.test_merge import write_adapter
from tests.policy.loopback import Loopback, Reply, Request, loopback

pytestmark = pytest.mark.anyio

SAMPLING = Sampling(max_tokens=4)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Engine:
    """Engines as they are opened and closed; a call waits until `go` is set. Each has a prefix cache of its own."""

    opened: list[str] = field(default_factory=list[str])
    closed: list[str] = field(default_factory=list[str])
    promoted: list[tuple[str, Tokens]] = field(default_factory=list[tuple[str, Tokens]])
    go: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def open(self, version: str) -> AsyncGenerator[Policy, None]:
        self.opened.append(version)
        try:
            yield _Served(self, version)
        finally:
            self.closed.append(version)


class _Served:
    def __init__(self, engine: Engine, version: str) -> None:
        self._engine, self.weight_version = engine, version
        self._cache: dict[Tokens, int] = {}

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        self._engine.promoted.append((self.weight_version, prompt))

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        """Samples the number of the version, or what it has in its cache."""
        version, token = self.weight_version, self._cache.setdefault(prompt, int(self.weight_version))
        await self._engine.go.wait()
        return Completion((token,), (-0.1,), FinishReason.STOP, version)


async def ask(live: LivePolicy, into: list[Completion]) -> None:
    into.append(await live.generate((1, 2), SAMPLING))


async def test_d12_publishing_aborts_nobody(engine: Engine) -> None:
    done: list[Completion] = []
    async with open_live_policy(engine.open("1")) as live:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, live, done)
            await anyio.wait_all_tasks_blocked()
            await live.publish(engine.open("2"))
            tasks.start_soon(ask, live, done)
            await anyio.wait_all_tasks_blocked()
            assert (live.versions, live.busy, engine.closed) == (("1", "2"), 2, [])
            engine.go.set()
        await anyio.wait_all_tasks_blocked()
        assert (live.versions, live.busy, engine.closed) == (("2",), 0, ["1"])
    assert [completion.weight_version for completion in done] == ["1", "2"]
    assert engine.closed == ["1", "2"]


async def test_a_promotion_reaches_the_version_that_has_the_call(engine: Engine) -> None:
    done: list[Completion] = []
    async with open_live_policy(engine.open("1")) as live, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, live, done)
        await anyio.wait_all_tasks_blocked()
        await live.publish(engine.open("2"))
        live.promote((1, 2), SAMPLING)
        engine.go.set()
    assert ("1", (1, 2)) in engine.promoted


async def test_e04_a_completion_says_the_version_that_was_current_when_it_was_sent(engine: Engine) -> None:
    done: list[Completion] = []
    async with open_live_policy(engine.open("1")) as live, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, live, done)
        await anyio.wait_all_tasks_blocked()
        for version in "234":
            await live.publish(engine.open(version))
        assert live.weight_version == "4"
        engine.go.set()
    assert [(completion.weight_version, completion.token_ids) for completion in done] == [("1", (1,))]


async def test_e01_a_version_reads_nothing_that_an_older_one_has_cached(engine: Engine) -> None:
    engine.go.set()
    async with open_live_policy(engine.open("1")) as live:
        before = await live.generate((1, 2), SAMPLING)
        await live.publish(engine.open("2"))
        after = await live.generate((1, 2), SAMPLING)
    assert (before.token_ids, after.token_ids) == ((1,), (2,))


async def test_e03_twenty_updates_leave_one_version_open(engine: Engine) -> None:
    engine.go.set()
    async with open_live_policy(engine.open("0")) as live:
        for version in range(1, 21):
            await live.publish(engine.open(str(version)))
            await live.generate((1,), SAMPLING)
            await anyio.wait_all_tasks_blocked()
            assert live.versions == (str(version),)
    assert engine.closed == engine.opened == [str(version) for version in range(21)]


async def test_a_version_that_does_not_open_leaves_the_one_before_it(engine: Engine) -> None:
    @asynccontextmanager
    async def broken() -> AsyncGenerator[Policy, None]:
        raise EngineError("no memory")
        yield  # pyright: ignore[reportUnreachable]

    engine.go.set()
    async with open_live_policy(engine.open("1")) as live:
        with pytest.raises(EngineError, match="no memory"):
            await live.publish(broken())
        assert (await live.generate((1,), SAMPLING)).weight_version == "1"


async def test_leaving_closes_every_version_and_raises_the_error_itself(engine: Engine) -> None:
    async def fail() -> None:
        async with open_live_policy(engine.open("1")) as live:
            await live.publish(engine.open("2"))
            raise EngineError("mine")

    with pytest.raises(EngineError, match="mine"):
        await fail()
    assert sorted(engine.closed) == ["1", "2"]


@pytest.fixture
def engine() -> Engine:
    return Engine()


# vLLM ---------------------------------------------------------------------------------------------------------------


@dataclass
class Vllm:
    """A server that loads adapters by name and answers with their name's last character."""

    loaded: list[str] = field(default_factory=list[str])
    log: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    asked: anyio.Event = field(default_factory=anyio.Event)
    go: anyio.Event = field(default_factory=anyio.Event)
    unloaded: anyio.Event = field(default_factory=anyio.Event)

    async def answer(self, request: Request, reply: Reply) -> None:
        body: Any = request.body
        if request.path == "/v1/load_lora_adapter":
            assert (Path(body["lora_path"]) / "adapter_model.safetensors").is_file()
            self.loaded.append(body["lora_name"])
            self.log.append(("load", body["lora_name"]))
            return await reply.status(200, "Success")
        if request.path == "/v1/unload_lora_adapter":
            self.loaded.remove(body["lora_name"])
            self.log.append(("unload", body["lora_name"]))
            self.unloaded.set()
            return await reply.status(200, "Success")
        assert body["model"] in self.loaded
        self.asked.set()
        await self.go.wait()
        self.log.append(("answer", body["model"]))
        choice = {"index": 0, "text": "x", "token_ids": [7], "logprobs": {"token_logprobs": [-0.5]}}
        await reply.status(200)
        return await reply.events({"choices": [choice | {"finish_reason": "length"}]})


@asynccontextmanager
async def vllm_serving(tmp_path: Path) -> AsyncGenerator[tuple[Vllm, Loopback, VllmServing], None]:
    write_adapter(tmp_path / "a.safetensors", "model.layers.0.mlp.up_proj", 96, 64)
    server = Vllm()
    async with loopback(server.answer) as http:
        yield server, http, VllmServing(http.url, tmp_path / "adapters")


async def test_d12_vllm_unloads_an_adapter_after_its_last_answer(tmp_path: Path) -> None:
    done: list[Completion] = []
    async with vllm_serving(tmp_path) as (server, http, serving):
        async with open_live_policy(serving.open(tmp_path / "a.safetensors", "world-1")) as live:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one_token, live, done)
                await server.asked.wait()
                await live.publish(serving.open(tmp_path / "a.safetensors", "world-2"))
                assert server.loaded == ["world-1", "world-2"]
                server.go.set()
            await server.unloaded.wait()
            assert server.loaded == ["world-2"]
            assert (await live.generate((1,), Sampling(max_tokens=1))).weight_version == "world-2"
        await http.settled()
    assert [completion.weight_version for completion in done] == ["world-1"]
    assert server.log.index(("answer", "world-1")) < server.log.index(("unload", "world-1"))
    assert server.loaded == []
    assert list((tmp_path / "adapters").iterdir()) == []


async def one_token(live: LivePolicy, into: list[Completion]) -> None:
    into.append(await live.generate((1,), Sampling(max_tokens=1)))


async def test_a_server_without_adapters_is_a_sentence(tmp_path: Path) -> None:
    async def refuse(_request: Request, reply: Reply) -> None:
        await reply.status(404, "not found")

    write_adapter(tmp_path / "a.safetensors", "model.layers.0.mlp.up_proj", 96, 64)
    async with loopback(refuse) as http:
        serving = VllmServing(http.url, tmp_path / "adapters")
        with pytest.raises(ConfigError, match="--enable-lora"):
            async with open_live_policy(serving.open(tmp_path / "a.safetensors", "v1")):
                pass
    assert list((tmp_path / "adapters").iterdir()) == []
