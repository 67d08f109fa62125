"""A language world model by URL: goes on with a conversation's own text after the opening of a tool response.

Its engine takes text (`/v1/completions`): what tokens the served policy has is not known here, and need not be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import httpx2

from obsspec.integrations.proxy.upstream import engine_root
from obsspec.policy.transport import check_status, engine_errors, expected_shape, http_client
from obsspec.protocols import Emit
from obsspec.values import Context, EngineError, Observation, Prediction, PredictionCutError, Tokens

_STOPS = ("\n</tool_response>", "<|im_end|>")
_LONGEST = 1 << 18  # characters of a prompt; of a longer conversation only the end is shown
_MOST = 1 << 20  # bytes of an answer: no prediction of `max_tokens` is longer
_UNKNOWN = 0.5  # confidence where the engine tells no probabilities


class Transcript(Protocol):
    """Messages of a conversation by its own numbers."""

    def messages(self, prompt: Tokens, completion: Tokens) -> Sequence[Mapping[str, Any]]: ...


class TextEngine:
    """One for all conversations. Errors: `EngineError`. Cancelling closes the connection.

    `url` with or without `/v1`; raises `ConfigError` for one of no engine.
    """

    def __init__(self, url: str, model: str, *, max_tokens: int = 256, timeout_s: float = 30.0) -> None:
        root = engine_root("--world-model", url)
        self._name = f"world model {root}"
        self._model = model
        self._max_tokens = max_tokens
        self._client = http_client(f"{root}/v1", timeout_s=timeout_s, connections=None, headers={})

    async def aclose(self) -> None:
        await self._client.aclose()

    async def complete(self, prompt: str) -> tuple[str, float]:
        """The most likely text before a tool response is closed, and its probability."""
        request = {
            "model": await self._served(),
            "prompt": prompt,
            "max_tokens": self._max_tokens,
            "temperature": 0.0,
            "stop": list(_STOPS),
            "logprobs": 0,
        }
        answer = await self._ask("POST", "/completions", request)
        with expected_shape(self._name):
            choice: dict[str, Any] = answer["choices"][0]
            if choice["finish_reason"] == "length":
                raise PredictionCutError(f"cut off at {self._max_tokens} tokens")
            told: dict[str, list[float] | None] = choice.get("logprobs") or {}
            logprobs = told.get("token_logprobs") or []
            return str(choice["text"]), math.exp(min(0.0, math.fsum(logprobs))) if logprobs else _UNKNOWN

    async def _served(self) -> str:
        if not self._model:
            answer = await self._ask("GET", "/models", None)
            with expected_shape(self._name):
                self._model = str(answer["data"][0]["id"])
        return self._model

    async def _ask(self, method: str, path: str, request: object) -> dict[str, Any]:
        with engine_errors(self._name):
            async with self._client.stream(method, path, json=request) as response:
                await check_status(response, self._name)
                body = await _body(response, self._name)
        with expected_shape(self._name):
            return cast("dict[str, Any]", json.loads(body))


class TextWorldModel:
    """Of one conversation. One candidate, the greedy one; a turn of several calls is predicted call by call."""

    def __init__(self, engine: TextEngine, transcript: Transcript) -> None:
        self._engine = engine
        self._transcript = transcript

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        prompt = written(self._transcript.messages(context.prompt, context.completion))
        observations: list[Observation] = []
        probability = 1.0
        for _ in context.calls:
            opened = "\n<tool_response>\n"
            text, p = await self._engine.complete((prompt + opened)[-_LONGEST:])
            observations.append(Observation(text))
            probability *= p
            prompt += f"{opened}{text}\n</tool_response>"
        emit(Prediction(tuple(observations), "lm", probability))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Learns elsewhere, if at all."""


def written(messages: Sequence[Mapping[str, Any]]) -> str:
    """The conversation up to its tool responses, as Hermes and Qwen models write it."""
    parts = [f"<|im_start|>{each.get('role')}\n{_content(each)}<|im_end|>\n" for each in messages]
    return "".join(parts) + "<|im_start|>user"


def _content(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in cast("list[Mapping[str, Any]]", content))
    text = str(content or "")
    if message.get("role") == "tool":
        return f"<tool_response>\n{text}\n</tool_response>"
    calls = [_call(each["function"]) for each in message.get("tool_calls") or ()]
    return "\n".join([*([text] if text else []), *calls])


def _call(function: Mapping[str, Any]) -> str:
    return (
        f'<tool_call>\n{{"name": {json.dumps(function["name"])}, "arguments": {function["arguments"]}}}\n</tool_call>'
    )


async def _body(response: httpx2.Response, engine: str) -> bytes:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MOST:
            raise EngineError(f"{engine} answers without end")
    return body
