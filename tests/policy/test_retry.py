"""Committed calls are retried while it may help; speculative ones never."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import pytest

from obsspec.policy.retry import Retrying
from obsspec.policy.transport import BusyError
from obsspec.protocols import OnTokens
from obsspec.testing.virtual_clock import Backend, backend_options
from obsspec.values import Completion, EngineError, FinishReason, Priority, Sampling, Tokens

pytestmark = pytest.mark.anyio

DONE = Completion((1,), (-0.5,), FinishReason.LENGTH)


@pytest.fixture(params=[Backend.TRIO, Backend.ASYNCIO])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return str(request.param), backend_options(request.param)


@dataclass
class Failing:
    """Raises the errors one after the other, then answers."""

    errors: list[Exception]
    calls: list[float] = field(default_factory=list)
    weight_version: str = "3"

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        self.calls.append(anyio.current_time())
        if self.errors:
            raise self.errors.pop(0)
        return DONE


def gaps(calls: list[float]) -> list[float]:
    return [round(after - before, 3) for before, after in pairwise(calls)]


async def test_a_passing_failure_is_retried_after_growing_waits() -> None:
    engine = Failing([EngineError("a"), EngineError("b")])
    policy = Retrying(engine, attempts=3, first_wait_s=0.5)
    assert await policy.generate((1,), Sampling(1)) == DONE
    assert gaps(engine.calls) == [0.5, 1.0]
    assert policy.retries == 2
    assert policy.weight_version == "3"


async def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    engine = Failing([EngineError(str(number)) for number in range(9)])
    with pytest.raises(EngineError, match="2"):
        await Retrying(engine, attempts=3).generate((1,), Sampling(1))
    assert len(engine.calls) == 3


async def test_f01_a_wrong_request_is_not_sent_again() -> None:
    engine = Failing([EngineError("context", retryable=False)])
    with pytest.raises(EngineError, match="context"):
        await Retrying(engine).generate((1,), Sampling(1))
    assert len(engine.calls) == 1


async def test_speculative_calls_are_not_retried() -> None:
    engine = Failing([EngineError("a")])
    with pytest.raises(EngineError, match="a"):
        await Retrying(engine).generate((1,), Sampling(1), priority=Priority.SPECULATIVE)
    assert len(engine.calls) == 1


async def test_a_busy_engine_is_asked_when_it_said_but_not_later_than_the_longest_wait() -> None:
    engine = Failing([BusyError("busy", 3.0), BusyError("busy", 900.0)])
    await Retrying(engine, longest_wait_s=10.0).generate((1,), Sampling(1))
    assert gaps(engine.calls) == [3.0, 10.0]


async def test_cancelling_while_it_waits_sends_nothing_more() -> None:
    engine = Failing([EngineError("a")] * 9)
    with anyio.move_on_after(0.7):
        await Retrying(engine, attempts=9, first_wait_s=0.5).generate((1,), Sampling(1))
    await anyio.sleep(60)
    assert len(engine.calls) == 2


async def test_other_errors_pass() -> None:
    engine = Failing([ValueError("a bug")])
    with pytest.raises(ValueError, match="a bug"):
        await Retrying(engine).generate((1,), Sampling(1))
