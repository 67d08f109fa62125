"""The policy client of the embedded engine: llama-server's `/completion`, token ids in, token ids and logprobs out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from obsspec.models.merge import ServedModel
from obsspec.policy.llama_server import EngineSettings, LlamaServer, open_llama_server
from obsspec.policy.sampled import Sampled
from obsspec.policy.slot_pool import Lease, SlotPool
from obsspec.policy.slots import SlotTable
from obsspec.policy.transport import check_status, engine_errors, events, expected_shape, http_client
from obsspec.protocols import OnTokens
from obsspec.values import Completion, EngineError, Priority, Sampling, Tokens

_ENGINE = "llama-server"
_DEATH_S = 0.05  # a dying process closes its connections a little before it can be seen to have ended
_NO_RANDOM_SEED = 2**32 - 1  # this seed would make llama-server choose one


class LlamaPolicy:
    """A `Policy` on a `LlamaServer`. Use `open_llama_policy`, or as an async context manager.

    Generation ends with the first of `stop_token_ids`, or with `LENGTH` at an end-of-text token of the model that is
    not among them. Cancelling closes the connection, which the engine notices at its next batch.
    """

    def __init__(self, server: LlamaServer, *, timeout_s: float = 60.0) -> None:
        """`timeout_s`: a longer silence of the engine is an `EngineError`; it reports while it reads a prompt, too."""
        self._server = server
        self._client = http_client(server.url, timeout_s=timeout_s, connections=None, headers={})
        self._table = SlotTable(server.slots, keep=2 * server.slots + 2)
        self._pool = SlotPool(self._table, self._slot_action)

    async def __aenter__(self) -> LlamaPolicy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @property
    def weight_version(self) -> str:
        return self._server.weight_version

    @property
    def context(self) -> int:
        """Tokens of prompt and completion that fit into a slot."""
        return self._server.context

    @property
    def busy(self) -> int:
        """Requests that hold a slot now."""
        return self._pool.busy

    def promote(self, prompt: Tokens, sampling: Sampling) -> None:
        self._pool.promote(prompt, sampling)

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        self._check(prompt, sampling)
        version = self.weight_version
        sampled = Sampled(sampling, on_tokens)
        async with self._pool.lease(prompt, sampling, priority) as lease:
            try:
                with engine_errors(_ENGINE):
                    ended = await self._stream(_request(prompt, sampling, lease.slot), sampled, lease, prompt)
            except EngineError as error:
                await anyio.sleep(_DEATH_S)
                if (failure := self._server.failure()) is not None:
                    raise EngineError(failure, retryable=False) from error
                raise
        return sampled.completion(ended, version)

    async def reset_cache(self) -> None:
        """Makes the engine forget every prefix. Call it while nothing is being generated."""
        self._table.forget()
        for slot in self._table.slots:
            await self._slot_action(slot.number, "erase", "")

    def _check(self, prompt: Tokens, sampling: Sampling) -> None:
        tokens = f"{len(prompt)} prompt tokens and max_tokens {sampling.max_tokens}"
        if not prompt or sampling.max_tokens < 1:
            raise EngineError(f"nothing to generate from {tokens}", retryable=False)
        if len(prompt) + sampling.max_tokens > self.context:
            raise EngineError(f"{tokens} do not fit a context of {self.context}", retryable=False)
        if sampling.model:
            raise EngineError(f"{_ENGINE} serves one model, there is no {sampling.model!r}", retryable=False)

    async def _stream(self, request: dict[str, Any], sampled: Sampled, lease: Lease, prompt: Tokens) -> bool:
        """Whether the model, not a limit, ended it."""
        async with self._client.stream("POST", "/completion", json=request) as response:
            await check_status(response, _ENGINE)
            async for event in events(response, _ENGINE):
                with expected_shape(_ENGINE):
                    if "error" in event:
                        raise EngineError(f"{_ENGINE}: {event['error']}")
                    if event["stop"]:
                        return event["stop_type"] == "eos"
                    if "prompt_progress" in event:
                        lease.held = prompt[: event["prompt_progress"]["processed"]]
                        continue
                    _add(event, sampled)
                lease.held = (*prompt, *sampled.token_ids)
                if sampled.stopped:
                    return True
        raise EngineError(f"{_ENGINE} closed the connection in mid-generation")

    async def _slot_action(self, slot: int, action: str, name: str) -> None:
        for old in self._table.dropped:
            (self._server.snapshots / old).unlink(missing_ok=True)
        self._table.dropped.clear()
        with engine_errors(_ENGINE):
            answer = await self._client.post(f"/slots/{slot}", params={"action": action}, json={"filename": name})
            await check_status(answer, _ENGINE)


@asynccontextmanager
async def open_llama_policy(
    model: ServedModel, settings: EngineSettings, log: Path
) -> AsyncGenerator[LlamaPolicy, None]:
    """An engine of its own and its client; both end with the context. Raises `ConfigError` if it cannot start."""
    async with open_llama_server(model, settings, log) as server, LlamaPolicy(server) as policy:
        yield policy


def _request(prompt: Tokens, sampling: Sampling, slot: int) -> dict[str, Any]:
    return {
        "prompt": list(prompt),
        "n_predict": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "samplers": ["temperature"] if sampling.top_p >= 1 else ["temperature", "top_p"],
        "seed": sampling.seed % _NO_RANDOM_SEED,
        "id_slot": slot,
        "cache_prompt": True,
        "stream": True,
        "return_tokens": True,
        "return_progress": True,  # without it a cancelled prompt would be read to its end before anybody noticed
        "n_probs": 1,
        "response_fields": ["stop", "stop_type", "tokens_predicted"],
    }


def _add(event: dict[str, Any], sampled: Sampled) -> None:
    probabilities: list[dict[str, Any]] = event.get("completion_probabilities", [])
    tokens: list[int] = event["tokens"]
    if [entry["id"] for entry in probabilities] != tokens:
        raise EngineError(f"{_ENGINE} returned logprobs for other tokens than it sampled")
    sampled.add(tokens, [entry["logprob"] for entry in probabilities])
    if not sampled.stopped and event["tokens_predicted"] != len(sampled.token_ids):
        raise EngineError(f"{_ENGINE} withheld a token: serve a file that `served_model` has written", retryable=False)
