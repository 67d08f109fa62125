"""A verifiers environment, unmodified, through the proxy."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from obsspec.models.tokenizer_file import FileVocabulary
from tests.integrations.proxy.engine import TOOLS, Engine, running
from tests.integrations.proxy.test_ids import byte_tokenizer, policy

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
openai = pytest.importorskip("openai", reason="openai is not installed")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
SCRIPT = ("mkdir out", "echo one > out/a", "cat out/a", "sleep 0.1; echo slow", "cat out/a", "ls out")


class BashLoop(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc, name-defined]
    """A harness as users write them: the openai SDK against verifiers' own endpoint, a shell in verifiers' runtime."""

    EXECUTES_CODE = True
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *rest: Any, **more: Any
    ) -> Any:
        from verifiers.v1.runtimes import ProgramResult

        messages: list[Any] = [{"role": "user", "content": "go"}]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            while True:
                answer = await client.chat.completions.create(model=ctx.model, messages=messages, tools=TOOLS)
                message = answer.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls or ():
                    command = json.loads(call.function.arguments)["command"]
                    shown = (await runtime.run(["sh", "-c", command], {})).stdout
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": shown})
                if not message.tool_calls:
                    return ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["BashLoop"]
sys.modules["bash_loop"] = sys.modules[__name__]  # verifiers finds a harness by the name of its module


async def play(url: str, seed: int, client: Any) -> list[Any]:
    from verifiers.v1.runtimes import SubprocessConfig

    config = vf.AgentConfig(
        model="m",
        harness=vf.HarnessConfig(id="bash_loop"),
        runtime=SubprocessConfig(),
        client=client(base_url=f"{url}/v1", api_key_var="NO_KEY"),
        sampling=vf.SamplingConfig(max_tokens=60, temperature=1.0, seed=seed),
    )
    async with vf.make_agent(config) as agent:
        trace = await agent.run(vf.Task(vf.TaskData(prompt="go")))
    assert not trace.errors
    return [(node.message.model_dump(), list(node.token_ids or ()), list(node.mask or ())) for node in trace.nodes]


async def test_an_evaluation_is_the_same_and_is_answered_early() -> None:
    """Chat routes: verifiers relays what its harness sends."""
    from verifiers.v1.configs.client import EvalClientConfig

    async with running(Engine(SCRIPT, first_s=0.05)) as (server, url, service):
        for seed in range(3):
            direct = await play(server.url, seed, EvalClientConfig)
            assert await play(url, seed, EvalClientConfig) == direct
            assert len(direct) > 2 * len(SCRIPT)
        assert service.parts.figures.claimed >= 4


async def test_a_rollout_for_training_is_the_same_token_for_token_and_is_answered_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token routes: verifiers renders prompts itself, and says in each request where its new part begins."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from renderers.configs import Qwen3RendererConfig
    from verifiers.v1.configs.client import TrainClientConfig

    tokenizer = byte_tokenizer()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    ).save_pretrained(tmp_path)
    client = partial(TrainClientConfig, renderer_model_name=str(tmp_path), renderer=Qwen3RendererConfig())
    path = tmp_path / "tokenizer.json"
    engine = Engine(fault=policy(FileVocabulary(path), SCRIPT))
    async with running(engine, tokenizer=path) as (server, url, service):
        for seed in range(3):
            direct = await play(server.url, seed, client)
            assert await play(url, seed, client) == direct
            assert sum(sum(mask) for _, _, mask in direct) > 100
        assert service.parts.figures.claimed >= 8
