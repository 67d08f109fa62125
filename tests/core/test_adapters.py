"""The real adapters pass the same suites as the fakes, and real sandboxes leave the event loop alone."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from obsspec.models.merge import served_model
from obsspec.models.tokenizer import load_vocabulary
from obsspec.policy.llama import LlamaPolicy
from obsspec.policy.llama_server import EngineSettings, LlamaServer, open_llama_server
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.policy.retry import Retrying
from obsspec.protocols import Policy, Sandbox
from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.collector import Collector, Job, Verdict
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.testing import ScriptedPolicy, recite, terminal_script, toy_renderer
from obsspec.testing import policy as scripted
from obsspec.testing.conformance import check_policy, check_sandbox, check_world_model
from obsspec.testing.conformance.sandbox import LONG, SHORT, bash
from obsspec.values import Context, Exchange, Observation, Priority, Sampling, StopReason
from obsspec.world.language import LanguageWorldModel
from tests.policy.loopback import Loopback, Reply, Request, loopback
from tests.sandbox.support import host_processes

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Sandboxes ---------------------------------------------------------------------------------------------------------


async def running() -> int:
    return len(host_processes(SHORT)) + len(host_processes(LONG))


@pytest.mark.sandbox
async def test_local_sandboxes_keep_their_promises() -> None:
    sandboxes = LocalSandboxes(timeout_s=20)
    await check_sandbox(lambda: sandboxes.open(SandboxSpec()), running=running)


@pytest.mark.sandbox
async def test_remote_sandboxes_keep_their_promises() -> None:
    async with serve_sandboxes(latency="0.02", timeout_s=20) as sandboxes:
        await check_sandbox(lambda: sandboxes.open(SandboxSpec()), running=running)


class LocalTask:
    """A task whose sandbox is a real one."""

    instruction = "wait"

    def __init__(self, name: str, sandboxes: LocalSandboxes) -> None:
        self.task_id = name
        self._sandboxes = sandboxes

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox]:
        async with self._sandboxes.open(SandboxSpec()) as sandbox:
            yield sandbox

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        return Verdict(1.0)


@pytest.mark.sandbox
async def test_c18_a_slow_tool_in_eight_rollouts_leaves_the_event_loop_alone() -> None:
    """A tool that blocked the loop would hold it for two seconds; a busy machine holds it for some milliseconds."""
    renderer = toy_renderer()
    policy = ScriptedPolicy(recite(renderer.call("sleep 2; echo x"), renderer.answer("done")))
    sandboxes = LocalSandboxes()
    jobs = [Job(LocalTask(f"t{i}", sandboxes), RolloutRules(renderer, Limits(4, 100, 1000), f"s{i}")) for i in range(8)]
    lags: list[float] = []

    async def watch() -> None:
        while True:
            due = time.monotonic() + 0.01
            await anyio.sleep(0.01)
            lags.append(time.monotonic() - due)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        start = time.monotonic()
        results = await Collector(policy, 8).run(jobs)
        took = time.monotonic() - start
        tasks.cancel_scope.cancel()
    assert [r.trajectory.stop for r in results] == [StopReason.FINAL] * 8
    assert took < 8.0, "eight times two seconds, side by side"
    assert sorted(lags)[len(lags) // 2] < 0.05
    assert max(lags) < 1.0


# Policies ----------------------------------------------------------------------------------------------------------


def token_server(engine: ScriptedPolicy) -> Any:
    """What vLLM's `/v1/completions` says, with a scripted policy behind it: one event for each token."""

    async def script(request: Request, reply: Reply) -> None:
        body = request.body
        sampling = Sampling(
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            seed=body["seed"],
            stop_token_ids=tuple(body["stop_token_ids"]),
            top_p=body["top_p"],
        )
        asked = scripted.Request(0, tuple(body["prompt"]), sampling, Priority.COMMITTED, engine.weight_version)
        whole = scripted.sample(terminal_script(final=0.1, malformed=0.1, cut=0.0, empty=0.0), asked)
        await reply.status(200)
        for number, token in enumerate(whole.token_ids):
            await anyio.sleep(0.002)
            last = number == len(whole.token_ids) - 1
            choice = {
                "index": 0,
                "text": "x",
                "token_ids": [token],
                "logprobs": {"token_logprobs": [whole.logprobs[number]]},
                "finish_reason": str(whole.finish_reason) if last else None,
            }
            await reply.events({"choices": [choice]})
        await reply.events("[DONE]")

    return script


@pytest.mark.parametrize("retrying", [False, True])
async def test_the_token_endpoint_client_keeps_its_promises(retrying: bool) -> None:
    renderer = toy_renderer()
    engine = ScriptedPolicy(recite(renderer.answer("")))
    opened: list[Loopback] = []

    @asynccontextmanager
    async def factory() -> AsyncGenerator[Policy]:
        async with loopback(token_server(engine)) as server, TokenEndpointPolicy(server.url, "toy") as policy:
            opened.append(server)
            yield Retrying(policy) if retrying else policy

    async def open_requests() -> int:
        return opened[-1].open

    prompts = [renderer.start(text) for text in ("list", "read", "say hello")]
    sampling = Sampling(max_tokens=40, stop_token_ids=renderer.stop_token_ids)
    await check_policy(factory, prompts=prompts, sampling=sampling, open_requests=open_requests)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[LlamaServer]:
    settings = EngineSettings(slots=4, context=512, threads=1)
    async with open_llama_server(served_model(), settings, tmp_path / "llama.log") as opened:
        yield opened


async def busy_slots(server: LlamaServer) -> int:
    async with httpx2.AsyncClient(timeout=30) as client:
        slots = (await client.get(f"{server.url}/slots")).json()
    return sum(slot["is_processing"] for slot in slots)


@pytest.mark.engine
async def test_the_embedded_engine_keeps_its_promises(server: LlamaServer) -> None:
    renderer = TerminalRenderer(load_vocabulary())
    texts = ("Print the working directory.", "Count the lines of a.txt.")
    prompts = [renderer.start(text) + renderer.call("")[:1] for text in texts]  # in the middle of a command
    sampling = Sampling(max_tokens=6, stop_token_ids=renderer.stop_token_ids)
    await check_policy(
        lambda: LlamaPolicy(server),
        prompts=prompts,
        sampling=sampling,
        open_requests=lambda: busy_slots(server),
        patience_s=20.0,
    )


@pytest.mark.engine
async def test_the_language_world_model_on_the_embedded_engine_keeps_its_promises(server: LlamaServer) -> None:
    renderer = TerminalRenderer(load_vocabulary())
    prompt = renderer.start("Print the working directory.")
    pwd, ls = bash("pwd"), bash("ls")
    contexts = [
        Context(prompt, renderer.call("pwd"), (pwd,)),
        Context(prompt, renderer.call("ls"), (ls, pwd), (Exchange((pwd,), (Observation("/home/user"),)),)),
    ]

    @asynccontextmanager
    async def factory() -> AsyncGenerator[LanguageWorldModel]:
        async with LlamaPolicy(server) as engine:
            yield LanguageWorldModel(engine, renderer, max_tokens=6)

    await check_world_model(
        factory, contexts=contexts, breadth=2, open_requests=lambda: busy_slots(server), patience_s=20.0
    )
