"""The tokens of one generation as they arrive from an engine, checked, and cut at the first stop token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio

from obsspec.protocols import OnTokens
from obsspec.values import Completion, EngineError, FinishReason, Sampling, Timing

# vLLM reports -inf as -9999.0. No sampled token has so small a probability.
_LOWEST = -9999.0


class Sampled:
    """Grows by `add`. Once `stopped`, what the engine may send beyond the stop token is left out."""

    def __init__(self, sampling: Sampling, on_tokens: OnTokens | None) -> None:
        self.token_ids: list[int] = []
        self.stopped = False
        self._logprobs: list[float] = []
        self._stops = frozenset(sampling.stop_token_ids)
        self._max_tokens = sampling.max_tokens
        self._on_tokens = on_tokens
        self._sent_s = self._first_s = self._last_s = anyio.current_time()

    def add(self, token_ids: Sequence[Any], logprobs: Sequence[Any]) -> None:
        """Raises `EngineError` unless there is one finite logprob for each id and no token beyond `max_tokens`."""
        if len(token_ids) != len(logprobs):
            raise EngineError(f"engine returned {len(logprobs)} logprobs for {len(token_ids)} tokens")
        before = len(self.token_ids)
        for token, logprob in zip(token_ids, logprobs, strict=True):
            if self.stopped:
                break
            self._add_one(token, logprob)
        if len(self.token_ids) > before:
            self._last_s = anyio.current_time()
            self._first_s = self._first_s if before else self._last_s
            if self._on_tokens is not None:
                self._on_tokens(len(self.token_ids))

    def _add_one(self, token: Any, logprob: Any) -> None:
        if not isinstance(token, int) or isinstance(token, bool):
            raise EngineError(f"engine returned the token id {token!r}")
        if not isinstance(logprob, int | float) or not math.isfinite(logprob) or logprob <= _LOWEST:
            raise EngineError(f"engine returned the logprob {logprob}")
        if len(self.token_ids) == self._max_tokens:
            raise EngineError(f"engine returned more than max_tokens = {self._max_tokens} tokens")
        self.token_ids.append(token)
        self._logprobs.append(float(logprob))
        self.stopped = token in self._stops

    def completion(self, engine_stopped: bool, weight_version: str) -> Completion:
        """`engine_stopped`: the engine says that the model ended, not that a limit was reached.

        An engine also ends at its own end-of-text token, from which it cannot go on. If the caller named other stop
        tokens, such a generation is a cut one (LENGTH). Raises `EngineError` when the engine gave up before
        `max_tokens`.
        """
        count = len(self.token_ids)
        if not (self.stopped or engine_stopped) and count < self._max_tokens:
            raise EngineError(f"engine ended after {count} of {self._max_tokens} tokens", retryable=False)
        is_stop = self.stopped or (engine_stopped and (not self._stops or not count))
        return Completion(
            tuple(self.token_ids),
            tuple(self._logprobs),
            FinishReason.STOP if is_stop else FinishReason.LENGTH,
            weight_version,
            Timing(self._sent_s, self._first_s, self._last_s),
        )
