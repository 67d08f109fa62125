"""A real engine with real weights behind the proxy."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest

from obsspec.models.merge import served_model
from obsspec.policy.llama_server import EngineSettings, LlamaServer
from tests.integrations.proxy.engine import Agent, Json, join, proxied

pytestmark = [pytest.mark.anyio, pytest.mark.engine]
GRAMMAR = r"""root ::= "So:\n```bash\n" cmd "\n```"
cmd ::= "ls out" | "cat out/a" | "cat out/b" | "echo " [a-z] [a-z] " > out/" [ab]"""


class Said(Agent):
    """What the model said; ids and clocks in an answer are the engine's, and never the same twice."""

    async def ask(self, client: httpx2.AsyncClient, messages: list[Json]) -> Json:
        answer = await self.post(client, {**self.fields, "messages": messages, "stream": self.stream})
        message = join(answer.body) if self.stream else json.loads(answer.body)["choices"][0]["message"]
        said = {"role": "assistant", "content": message["content"]}
        self.answers.append(type(answer)(answer.status, (), json.dumps(said).encode()))
        return said


def show(call: Json, text: str) -> Json:
    return {"role": "user", "content": text or "(no output)"}


async def test_a_seeded_model_says_the_same_and_is_asked_early(tmp_path: Path) -> None:
    engine = LlamaServer(served_model(), EngineSettings(slots=4, context=512, threads=1), tmp_path / "llama.log")
    try:
        async with proxied(engine.url) as (url, service):
            for seed, stream in enumerate((False, True)):
                fields = {"model": "m", "temperature": 1.0, "seed": seed, "max_tokens": 30, "grammar": GRAMMAR}
                direct, through = [
                    await Said(at, stream=stream, fields=fields, turns=5, tool_s=0.3, show=show).run()
                    for at in (engine.url, url)
                ]
                assert through == direct
            assert service.parts.figures.claimed >= 2
    finally:
        engine.stop()
