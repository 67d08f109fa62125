"""What a completion must satisfy before anything may be built on it."""

from __future__ import annotations

import math

from obsspec.values import Completion, EngineError, FinishReason, Sampling, Tokens


def check_completion(completion: Completion, sampling: Sampling) -> None:
    """Raises `EngineError` for a completion that can not have been sampled as asked.

    Engines answer -inf or NaN logprobs, lose one, or go past their limit; none of it may become training data.
    """
    ids, logprobs = completion.token_ids, completion.logprobs
    if len(ids) != len(logprobs):
        raise EngineError(f"engine returned {len(logprobs)} logprobs for {len(ids)} tokens")
    if len(ids) > sampling.max_tokens:
        raise EngineError(f"engine returned {len(ids)} tokens, max_tokens was {sampling.max_tokens}")
    if not all(map(math.isfinite, logprobs)):
        raise EngineError(f"engine returned the logprob {next(x for x in logprobs if not math.isfinite(x))}")
    stops = frozenset(sampling.stop_token_ids)
    if not stops.isdisjoint(ids[:-1]):
        raise EngineError("engine returned tokens after a stop token")
    if completion.finish_reason is FinishReason.STOP and stops and ids and ids[-1] not in stops:
        raise EngineError("engine reported a stop but returned no stop token")


def extends(prompt: Tokens, before: Tokens, sampled: Tokens) -> bool:
    """Whether a prompt begins with the one before it and the ids sampled on that, all unchanged.

    A template that rewrites history (drops thoughts, merges tokens at the boundary) gives False.
    """
    middle = len(before)
    return prompt[:middle] == before and prompt[middle : middle + len(sampled)] == sampled
