"""What every `Policy` must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import pairwise

import anyio

from obsspec.protocols import Policy
from obsspec.speculation.completions import check_completion
from obsspec.testing.conformance.promise import OpenProbe, cancelled_after, nothing_open, require
from obsspec.values import Completion, FinishReason, Priority, Sampling, Tokens

PolicyFactory = Callable[[], AbstractAsyncContextManager[Policy]]
Calls = list[tuple[Tokens, Sampling]]


async def check_policy(
    factory: PolicyFactory,
    *,
    prompts: Sequence[Tokens],
    sampling: Sampling,
    open_requests: OpenProbe | None = None,
    exact: bool = True,
    patience_s: float = 10.0,
) -> None:
    """Raises `BrokenPromiseError` for the first promise that is not kept.

    `prompts`: at least two, different. `sampling`: of a usual turn, with stop tokens and a temperature above 0.
    `open_requests` counts what runs at the engine. `exact` False: an engine whose numerics depend on the batch, from
    which equal calls need not get equal results.
    """
    async with factory() as policy:
        calls = [(prompt, replace(sampling, seed=seed)) for prompt in prompts for seed in (1, 2)]
        alone = [await policy.generate(*call) for call in calls]
        for completion, (_, asked) in zip(alone, calls, strict=True):
            _is_as_asked(completion, asked, policy.weight_version)
        await _limits(policy, calls, alone, exact)
        await _reports_tokens(policy, calls)
        await _cancels(policy, calls, open_requests, patience_s)
        await _agrees(policy, calls, alone, exact)
        await nothing_open(open_requests, patience_s)


def _is_as_asked(completion: Completion, asked: Sampling, version: str) -> None:
    check_completion(completion, asked)
    ids = completion.token_ids
    stopped = bool(ids) and ids[-1] in asked.stop_token_ids
    if completion.finish_reason is FinishReason.STOP and asked.stop_token_ids:
        require(stopped, "a generation that says STOP ends with a stop token, one that was cut says LENGTH")
    require(not stopped or completion.finish_reason is FinishReason.STOP, "a stop token ends with STOP, not LENGTH")
    require(all(logprob <= 1e-6 for logprob in completion.logprobs), "a logprob is not positive")
    require(completion.weight_version == version, "a completion carries the version it was sent with")


async def _limits(policy: Policy, calls: Calls, alone: list[Completion], exact: bool) -> None:
    """One token, and all but one."""
    for (prompt, sampling), whole in zip(calls, alone, strict=True):
        for limit in {1, max(1, len(whole.token_ids) - 1)}:
            cut = await policy.generate(prompt, replace(sampling, max_tokens=limit))
            require(len(cut.token_ids) <= limit, f"max_tokens {limit} gives no more tokens; got {len(cut.token_ids)}")
            _is_as_asked(cut, replace(sampling, max_tokens=limit), policy.weight_version)
            if exact:
                require(cut.token_ids == whole.token_ids[:limit], "a shorter limit cuts the same generation")


async def _reports_tokens(policy: Policy, calls: Calls) -> None:
    for prompt, sampling in calls:
        seen: list[int] = []
        completion = await policy.generate(prompt, sampling, on_tokens=seen.append)
        require(all(a < b for a, b in pairwise(seen)), "on_tokens only grows")
        require(not completion.token_ids or seen[-1:] == [len(completion.token_ids)], "on_tokens is told of all tokens")


async def _cancels(policy: Policy, calls: Calls, probe: OpenProbe | None, patience_s: float) -> None:
    """At the first token, before it, and all at once."""
    prompt, sampling = calls[0]
    for after_s in (0.0, 0.05):
        await cancelled_after(lambda: policy.generate(prompt, sampling), after_s, patience_s)
        await nothing_open(probe, patience_s)
    with anyio.CancelScope() as scope:
        await policy.generate(prompt, sampling, on_tokens=lambda _: scope.cancel())
    await nothing_open(probe, patience_s)

    async def everything() -> None:
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(policy.generate, *call)

    await cancelled_after(everything, 0.05, patience_s)
    await nothing_open(probe, patience_s)


async def _agrees(policy: Policy, calls: Calls, alone: list[Completion], exact: bool) -> None:
    """Again, all at once, at the other priority, and beside calls that are cancelled: always the same result."""
    together: dict[int, Completion] = {}

    async def one(index: int, priority: Priority) -> None:
        together[index] = await policy.generate(*calls[index], priority=priority)

    async def doomed(index: int) -> None:
        with anyio.move_on_after(0.02):
            await policy.generate(*calls[index])

    for priority in Priority:
        async with anyio.create_task_group() as tasks:
            for index in range(len(calls)):
                tasks.start_soon(doomed, index)
                tasks.start_soon(one, index, priority)
        for index, (_, asked) in enumerate(calls):
            _is_as_asked(together[index], asked, policy.weight_version)
        if exact:
            same = [together[index] == completion for index, completion in enumerate(alone)]
            require(
                all(same), f"equal calls get equal results, alone or not: {same.count(False)} of {len(same)} differ"
            )
            require(alone == [await policy.generate(*call) for call in calls], "the same call again is the same result")
    if exact:
        greedy = [replace(sampling, temperature=0.0) for _, sampling in calls[:2]]
        a, b = [await policy.generate(calls[0][0], sampling) for sampling in greedy]
        require(a == b, "at temperature 0 the seed changes nothing")
        require(len({completion.token_ids for completion in alone}) > 1, "seeds and prompts make a difference")
