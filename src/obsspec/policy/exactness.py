"""The start-up check that an engine's samples depend on (prompt, sampling, weights) alone.

Lossless speculation is equality token for token only on such an engine. The embedded engine is one in its exact mode,
not in its fast mode. LoRA adapters that llama-server itself applies are exact alone, from cache and on a sampled
history, but not in a batch, not even in the exact mode: adapters are therefore merged into the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol, runtime_checkable

import anyio

from obsspec.protocols import Policy
from obsspec.values import Completion, Sampling, Tokens

_PROMPTS, _PROMPT_TOKENS, _NEW_TOKENS = 4, 10, 10
_IDS = (300, 5000)  # ordinary tokens in any vocabulary


@dataclass(frozen=True, slots=True)
class ExactnessCheck:
    """`same` of `total` completions equal the reference in every id and every bit of every logprob."""

    name: str
    same: int
    total: int


@dataclass(frozen=True, slots=True)
class ExactnessReport:
    checks: tuple[ExactnessCheck, ...]

    @property
    def exact(self) -> bool:
        return all(check.same == check.total for check in self.checks)

    @property
    def failed(self) -> tuple[str, ...]:
        """The conditions under which something differed, with how often."""
        return tuple(f"{c.name}: {c.total - c.same} of {c.total} differ" for c in self.checks if c.same < c.total)


@runtime_checkable
class _Resettable(Protocol):
    async def reset_cache(self) -> None: ...


async def _nothing() -> None:
    pass


async def check_exactness(policy: Policy) -> ExactnessReport:
    """Samples at temperature 1 from short prompts, alone and then under speculation's conditions: some 300 tokens.

    The reference is each request alone from an empty cache, where the policy can empty it; it is compared with the
    same request in a batch, on cached prompts, on a history that was sampled and not read, and on a prefix on which
    another branch was cancelled. No difference in so few tokens is evidence, not proof. Raises `EngineError`.
    """
    reset = policy.reset_cache if isinstance(policy, _Resettable) else _nothing
    random = Random(1)
    prompts = [tuple(random.randrange(*_IDS) for _ in range(_PROMPT_TOKENS)) for _ in range(_PROMPTS)]
    await reset()
    alone = await _one_by_one(policy, prompts)
    histories = [(*prompts[i], *alone[i].token_ids, *prompts[-1][:4]) for i in range(2)]
    sampled = await _one_by_one(policy, histories)
    cached = await _together(policy, prompts)
    await reset()
    batch = await _together(policy, prompts)
    await reset()
    read = await _one_by_one(policy, histories)
    await reset()
    await _cancelled(policy, (*histories[0][:-2], *prompts[1][:2]))
    after = await _one_by_one(policy, histories[:1])
    return ExactnessReport(
        (
            _compare("in a batch", alone, batch),
            _compare("in a batch on cached prompts", alone, cached),
            _compare("on a sampled history", read, sampled),
            _compare("after a cancelled branch", read[:1], after),
        )
    )


async def _generate(policy: Policy, prompts: list[Tokens], index: int) -> Completion:
    return await policy.generate(prompts[index], Sampling(max_tokens=_NEW_TOKENS, seed=100 + index))


async def _one_by_one(policy: Policy, prompts: list[Tokens]) -> list[Completion]:
    return [await _generate(policy, prompts, index) for index in range(len(prompts))]


async def _together(policy: Policy, prompts: list[Tokens]) -> list[Completion]:
    done: dict[int, Completion] = {}

    async def one(index: int) -> None:
        done[index] = await _generate(policy, prompts, index)

    async with anyio.create_task_group() as tasks:
        for index in range(len(prompts)):
            tasks.start_soon(one, index)
    return [done[index] for index in range(len(prompts))]


async def _cancelled(policy: Policy, prompt: Tokens) -> None:
    """A generation that is cancelled when it has sampled a few tokens."""
    with anyio.CancelScope() as scope:

        def cut(tokens: int) -> None:
            if tokens >= 3:
                scope.cancel()

        await policy.generate(prompt, Sampling(max_tokens=_NEW_TOKENS, seed=1), on_tokens=cut)


def _compare(name: str, reference: list[Completion], others: list[Completion]) -> ExactnessCheck:
    pairs = list(zip(reference, others, strict=True))
    return ExactnessCheck(name, sum(left == right for left, right in pairs), len(pairs))
