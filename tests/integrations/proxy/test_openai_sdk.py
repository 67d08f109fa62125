"""The openai SDK, unmodified, through the proxy."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.integrations.proxy.engine import Engine, run_command, running

openai = pytest.importorskip("openai", reason="openai is not installed")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]

PARAMETERS = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "bash", "strict": True, "parameters": PARAMETERS}}]


async def play(url: str, seed: int, stream: bool) -> list[Any]:
    """An agent as the SDK's own documentation writes it: messages go back as they came."""
    files: dict[str, str] = {}
    messages: list[Any] = [{"role": "user", "content": "go"}]
    told: dict[str, Any] = {"model": "m", "tools": TOOLS, "seed": seed}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client:
        while True:
            if stream:
                async with client.chat.completions.stream(messages=messages, **told) as events:
                    answer = await events.get_final_completion()
            else:
                answer = await client.chat.completions.create(messages=messages, **told)
            message = answer.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return [each if isinstance(each, dict) else each.model_dump() for each in messages]
            for call in message.tool_calls:
                await anyio.sleep(0.05)
                shown = run_command(files, json.loads(call.function.arguments)["command"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": shown})


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_sees_the_same_and_is_answered_early(stream: bool) -> None:
    async with running(Engine(first_s=0.02)) as (server, url, service):
        for seed in range(2):
            assert await play(url, seed, stream) == await play(server.url, seed, stream)
        assert service.parts.figures.claimed >= 8


async def test_errors_reach_the_sdk_as_what_they_are() -> None:
    async def fault(request: Any, reply: Any) -> bool:
        await reply.status(429, '{"error": {"message": "slow down"}}', content_type="application/json", retry_after="1")
        return True

    async with (
        running(Engine(fault=fault)) as (_, url, _s),
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError, match="slow down"):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        with pytest.raises(openai.RateLimitError, match="slow down"):
            await client.models.list()
