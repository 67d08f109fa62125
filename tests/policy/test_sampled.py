"""What arrives from an engine is checked before it becomes a completion."""

from __future__ import annotations

import math
from typing import Any

import pytest

from obsspec.policy.sampled import Sampled
from obsspec.values import EngineError, FinishReason, Sampling

pytestmark = pytest.mark.anyio

SAMPLING = Sampling(max_tokens=4, stop_token_ids=(2,))


def sampled(*chunks: tuple[list[Any], list[Any]], sampling: Sampling = SAMPLING) -> Sampled:
    result = Sampled(sampling, None)
    for ids, logprobs in chunks:
        result.add(ids, logprobs)
    return result


async def test_a_stop_token_is_the_last_token() -> None:
    completion = sampled(([5], [-0.5]), ([2], [-0.1])).completion(False, "7")
    assert completion.token_ids == (5, 2)
    assert completion.logprobs == (-0.5, -0.1)
    assert completion.finish_reason is FinishReason.STOP
    assert completion.weight_version == "7"


async def test_a08_tokens_after_the_stop_are_left_out_with_their_logprobs() -> None:
    result = sampled(([5, 2, 9], [-0.5, -0.1, math.nan]), ([9], [-0.3]))
    assert result.stopped
    assert result.completion(False, "").token_ids == (5, 2)
    assert result.completion(False, "").logprobs == (-0.5, -0.1)


@pytest.mark.parametrize("bad", [-math.inf, math.inf, math.nan, None, "-0.5", -9999.0])
async def test_a10_a_logprob_that_is_no_number_is_an_error(bad: object) -> None:
    with pytest.raises(EngineError, match="logprob"):
        sampled(([5, 6], [-0.5, bad]))


@pytest.mark.parametrize(("ids", "logprobs"), [([5, 6], [-0.5]), ([5], []), ([], [-0.5])])
async def test_a10_one_logprob_too_few_or_too_many_is_an_error(ids: list[int], logprobs: list[float]) -> None:
    with pytest.raises(EngineError, match=f"{len(logprobs)} logprobs for {len(ids)} tokens"):
        sampled((ids, logprobs))


@pytest.mark.parametrize("bad", [None, "5", 5.0, True])
async def test_an_id_that_is_no_integer_is_an_error(bad: object) -> None:
    with pytest.raises(EngineError, match="token id"):
        sampled(([bad], [-0.5]))


async def test_max_tokens_end_with_length() -> None:
    full = ([5, 6, 7, 8], [-0.5] * 4)
    assert sampled(full).completion(False, "").finish_reason is FinishReason.LENGTH
    with pytest.raises(EngineError, match="more than max_tokens = 4"):
        sampled(full, ([9], [-0.5]))


async def test_an_engine_that_gives_up_early_is_an_error_that_no_retry_helps() -> None:
    with pytest.raises(EngineError, match="1 of 4 tokens") as caught:
        sampled(([5], [-0.5])).completion(False, "")
    assert not caught.value.retryable


async def test_the_engines_own_end_is_a_stop_only_if_no_other_was_asked_for() -> None:
    ended = ([5, 0], [-0.5, -0.2])
    assert sampled(ended).completion(True, "").finish_reason is FinishReason.LENGTH
    free = sampled(ended, sampling=Sampling(max_tokens=4)).completion(True, "")
    assert free.finish_reason is FinishReason.STOP


async def test_nothing_at_all_is_an_empty_completion() -> None:
    completion = sampled().completion(True, "")
    assert completion.token_ids == completion.logprobs == ()
    assert completion.finish_reason is FinishReason.STOP


async def test_the_caller_hears_of_every_growth() -> None:
    seen: list[int] = []
    result = Sampled(SAMPLING, seen.append)
    result.add([5], [-0.5])
    result.add([], [])
    result.add([6, 2, 9], [-0.5] * 3)
    result.add([9], [-0.5])
    assert seen == [1, 3]
