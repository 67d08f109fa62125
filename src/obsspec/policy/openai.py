"""A policy behind an OpenAI-style token endpoint: vLLM's `/v1/completions` with prompt ids in and token ids out.

Needs an engine that understands `return_token_ids` and `stop_token_ids`, as vLLM does; text alone is not enough.
"""

from __future__ import annotations

import uuid
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup

from obsspec.policy.engine_load import EngineLoad
from obsspec.policy.sampled import Sampled
from obsspec.policy.transport import check_status, engine_errors, events, expected_shape, http_client
from obsspec.protocols import OnTokens
from obsspec.values import Completion, ConfigError, EngineError, Priority, Sampling, Tokens

_PRIORITY = {Priority.COMMITTED: 0, Priority.SPECULATIVE: 1}  # vLLM serves the lower number first
# Said, because a server takes what is not said from the model's generation_config.
_NO_OTHER_SAMPLER = {
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class TokenEndpointPolicy:
    """A `Policy` by URL; also a world model's engine. Use as an async context manager.

    Cancelling closes the connection, which makes vLLM abort the request. While the context is open, the engine is asked
    once a second how busy it is. Where the server goes on after a stop token,
    or ignores the stop tokens, the generation is cut at the first of them all the same.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        weight_version: str = "",
        api_key: str = "",
        priorities: bool | None = None,
        timeout_s: float = 120.0,
        connections: int | None = None,
    ) -> None:
        """`url` with or without `/v1`. `weight_version`: set the attribute whenever new weights are published.

        `priorities`: the server runs with `--scheduling-policy priority`; None: `check` finds out. `timeout_s`: the
        longest silence. `connections`: at most so many requests at a time, the others wait; None is no limit.
        """
        root = url.rstrip("/").removesuffix("/v1")
        self._engine = f"engine {root}"
        self._model = model
        self._priorities = priorities
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = http_client(f"{root}/v1", timeout_s=timeout_s, connections=connections, headers=headers)
        self._load = EngineLoad(root, headers)
        self._tasks: TaskGroup
        self.weight_version = weight_version or model

    async def __aenter__(self) -> TokenEndpointPolicy:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._load.watch, name="engine-load")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # so that an error of the body stays as it is
        finally:
            await self._client.aclose()

    @property
    def busy(self) -> int:
        """Requests in flight at the engine now: ours, and those of others if the engine has a `/metrics` page."""
        return self._load.busy

    async def check(self) -> None:
        """Raises `ConfigError` when nothing answers at the URL or the model is not served there."""
        try:
            answer = await self._client.get("/models")
            names = [entry["id"] for entry in answer.json()["data"]] if answer.status_code == 200 else None
        except httpx2.HTTPError as error:
            raise ConfigError(f"{self._engine} is not reachable ({type(error).__name__}): start it") from None
        except (ValueError, KeyError, TypeError):
            names = None
        if names is None:
            raise ConfigError(f"{self._engine} answers no list of models: give the URL of a vLLM server")
        if self._model not in names:
            raise ConfigError(f"{self._engine} serves {', '.join(names)}, not {self._model}: name one of them")
        if self._priorities is None:
            self._priorities = await self._takes_priorities()

    async def _takes_priorities(self) -> bool:
        """vLLM refuses a priority unless it schedules by priority; a server that ignores it is not harmed by it."""
        request = {"model": self._model, "prompt": [0], "max_tokens": 1, "priority": _PRIORITY[Priority.SPECULATIVE]}
        try:
            return (await self._client.post("/completions", json=request)).status_code == 200
        except httpx2.HTTPError:
            return False

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        version = self.weight_version
        sampled = Sampled(sampling, on_tokens)
        request = self._request(prompt, sampling, priority)
        with self._load.request(), engine_errors(self._engine):
            name = {"x-request-id": uuid.uuid4().hex}  # of this attempt: never used again
            async with self._client.stream("POST", "/completions", json=request, headers=name) as response:
                await check_status(response, self._engine)
                ended = await self._read(response, sampled, prompt)
        return sampled.completion(ended, version)

    async def _read(self, response: httpx2.Response, sampled: Sampled, prompt: Tokens) -> bool:
        """Whether the model, not a limit, ended it."""
        async for event in events(response, self._engine):
            with expected_shape(self._engine):
                if "error" in event:
                    raise EngineError(f"{self._engine}: {event['error']}")
                if not event["choices"]:
                    continue  # the closing statement of usage
                reason = self._add(event, sampled, prompt)
            if sampled.stopped:
                return True
            if reason is not None:
                return reason == "stop"
        raise EngineError(f"{self._engine} closed the connection in mid-generation")

    def _add(self, event: dict[str, Any], sampled: Sampled, prompt: Tokens) -> str | None:
        """Takes in the new tokens; the reason of the end, if it is the end."""
        choice: dict[str, Any] = event["choices"][0]
        if (echoed := choice.get("prompt_token_ids")) is not None and tuple(echoed) != prompt:
            raise EngineError(f"{self._engine} changed the prompt's token ids", retryable=False)
        if choice.get("text") and choice.get("token_ids") is None:
            raise EngineError(f"{self._engine} returns text without token ids: it needs vLLM", retryable=False)
        tokens: list[int] = choice.get("token_ids") or []
        logprobs: list[float] = _inside(choice, "logprobs", "token_logprobs") or []
        if len(logprobs) != len(tokens):
            raise EngineError(f"{self._engine} returned {len(logprobs)} logprobs for {len(tokens)} tokens")
        skip = _already_seen(len(sampled.token_ids), len(tokens), _inside(event, "usage", "completion_tokens"))
        sampled.add(tokens[skip:], logprobs[skip:])
        reason: str | None = choice.get("finish_reason")
        if reason not in (None, "stop", "length"):
            raise EngineError(f"{self._engine} ended the generation with {reason!r}")
        return reason

    def _request(self, prompt: Tokens, sampling: Sampling, priority: Priority) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": sampling.model or self._model,
            "prompt": list(prompt),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **_NO_OTHER_SAMPLER,
            "seed": sampling.seed,
            "stop_token_ids": list(sampling.stop_token_ids),
            "logprobs": 1,
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if self._priorities:
            request["priority"] = _PRIORITY[priority]
        return request


def _inside(value: dict[str, Any], outer: str, inner: str) -> Any:
    """`value[outer][inner]`, None where either is missing or null."""
    found: dict[str, Any] | None = value.get(outer)
    return None if found is None else found.get(inner)


def _already_seen(before: int, here: int, total: int | None) -> int:
    """How many of the tokens in an event were there before: none, or all `before` when a stream is cumulative."""
    if total is None or total == before + here:
        return 0
    if total == here:
        return before
    raise EngineError(f"engine counted {total} tokens where {before} + {here} arrived")
