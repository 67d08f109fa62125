"""Token routes: ids in, ids out, and what comes after them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from obsspec.integrations.proxy.ids import IdFrames
from obsspec.models.tokenizer_file import FileVocabulary
from obsspec.values import Completion, FinishReason, Observation, Tokens
from tests.integrations.proxy.engine import COMMANDS, Engine, Json, digest, run_command, running
from tests.policy.loopback import Reply, Request

pytestmark = pytest.mark.anyio
CONTROLS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
ROUTES = {"/v1/completions": "prompt", "/inference/v1/generate": "token_ids"}


def byte_tokenizer() -> Tokenizer:
    """Every byte is a token; the tags of Qwen's template are tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(tag, special=True) for tag in CONTROLS])
    tokenizer.add_tokens([AddedToken(tag, special=False) for tag in TAGS])
    return tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@dataclass(slots=True)
class Collector:
    """A trainer's client: its next prompt is the previous one, what was sampled, and the frames of the results."""

    url: str
    route: str
    frames: IdFrames
    stream: bool = False
    seed: int = 1
    tool_s: float = 0.05
    answers: list[bytes] = field(default_factory=list[bytes])

    async def run(self, client: httpx2.AsyncClient) -> list[bytes]:
        files: dict[str, str] = {}
        prompt: Tokens = self.frames.renderer.start("do it")
        while True:
            sampled = await self._sample(client, prompt)
            turn = self.frames.parse(Completion(sampled, (0.0,) * len(sampled), FinishReason.STOP))
            if not turn.calls:
                return self.answers
            await anyio.sleep(self.tool_s)
            observations = [Observation(run_command(files, call.command)) for call in turn.calls]
            prompt = self.frames.renderer.extend(prompt, sampled, observations)

    async def _sample(self, client: httpx2.AsyncClient, prompt: Tokens) -> Tokens:
        body = {"model": "m", "seed": self.seed, ROUTES[self.route]: list(prompt), "return_token_ids": True}
        if self.stream:
            body["stream"] = True
        answer = await client.post(self.url + self.route, json=body)
        self.answers.append(answer.content)
        if not self.stream:
            return tuple(answer.json()["choices"][0]["token_ids"])
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        return tuple(i for event in events for i in event["choices"][0]["token_ids"])


def policy(vocabulary: FileVocabulary, commands: Sequence[str] = COMMANDS) -> Any:
    """A fake engine for token routes: the n-th turn calls the n-th command; what it thinks depends on the body."""

    async def answer(request: Request, reply: Reply) -> bool:
        if request.path not in ROUTES:
            return False
        body: Json = request.body
        prompt: list[int] = body[ROUTES[request.path]]
        turn = prompt.count(vocabulary.control("<tool_response>"))
        ids = vocabulary.encode(f"{digest(body)} ")
        if turn < len(commands):
            call = json.dumps({"name": "bash", "arguments": {"command": commands[turn]}})
            ids += (vocabulary.control("<tool_call>"), *vocabulary.encode(call), vocabulary.control("</tool_call>"))
        ids = [*ids, vocabulary.control("<|im_end|>")]
        await anyio.sleep(0.02)
        if not body.get("stream"):
            logprobs = {"content": [{"token": f"token_id:{i}", "logprob": -0.1} for i in ids]}
            choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "text": "", "logprobs": logprobs}
            await reply.status(200, json.dumps({"choices": [choice]}), content_type="application/json")
            return True
        await reply.status(200, content_type="text/event-stream")
        for i in range(0, len(ids), 3):
            last = "stop" if i + 3 >= len(ids) else None
            await reply.events({"choices": [{"index": 0, "token_ids": ids[i : i + 3], "finish_reason": last}]})
        await reply.events("[DONE]")
        return True

    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_with_a_tokenizer_the_next_prompt_is_expected_by_the_rules(
    route: str, stream: bool, tokenizer: Path
) -> None:
    vocabulary = FileVocabulary(tokenizer)
    frames = IdFrames(vocabulary)
    async with (
        running(Engine(fault=policy(vocabulary)), tokenizer=tokenizer) as (server, url, service),
        httpx2.AsyncClient(trust_env=False, verify=False) as client,
    ):
        for seed in range(2):
            direct = await Collector(server.url, route, frames, stream, seed).run(client)
            assert await Collector(url, route, frames, stream, seed).run(client) == direct
            assert len(direct) == len(COMMANDS) + 1
        assert service.parts.figures.claimed >= 6


async def test_without_one_what_was_seen_before_is_expected_again(tokenizer: Path) -> None:
    vocabulary = FileVocabulary(tokenizer)
    frames = IdFrames(vocabulary)
    async with (
        running(Engine(fault=policy(vocabulary))) as (server, url, service),
        httpx2.AsyncClient(trust_env=False, verify=False) as client,
    ):
        direct = await Collector(server.url, "/inference/v1/generate", frames).run(client)
        for _ in range(4):
            assert await Collector(url, "/inference/v1/generate", frames).run(client) == direct
        assert service.parts.figures.claimed >= 4


def test_a01_what_was_sampled_is_never_encoded_again(tokenizer: Path) -> None:
    """Ids that no encoder would give stay as they are: the expected prompt begins with them."""
    frames = IdFrames(FileVocabulary(tokenizer))
    prompt, odd = (1, 2, 3), (5, 5, 260, 5, 257)
    text = "out <|im_end|>\n"
    whole = frames.renderer.extend(prompt, odd, [Observation(text)])
    assert whole[:8] == (*prompt, *odd)
    assert frames.read(prompt, odd, whole[8:], 1) == (Observation(text),)


def test_frames_of_another_template_are_not_read(tokenizer: Path) -> None:
    frames = IdFrames(FileVocabulary(tokenizer))
    whole = frames.renderer.extend((1,), (2,), [Observation("a"), Observation("")])
    assert frames.read((1,), (2,), whole[2:], 2) == (Observation("a"), Observation(""))
    assert frames.read((1,), (2,), whole[2:], 1) is None
    assert frames.read((1,), (2,), whole[2:-1], 2) is None
    assert frames.read((1,), (2,), (7, *whole[2:]), 2) is None
