"""The fakes keep the promises that tests build on."""

from __future__ import annotations

from random import Random

import anyio
import pytest

from obsspec.testing import recite, run_virtual, terminal_script, toy_vocabulary
from obsspec.testing.delays import choice, constant
from obsspec.testing.policy import ScriptedPolicy
from obsspec.testing.virtual_clock import Backend, DeadlockError
from obsspec.values import Completion, EngineError, FinishReason, Sampling

VOCABULARY = toy_vocabulary()
END = VOCABULARY.control("<|im_end|>")
SAMPLING = Sampling(max_tokens=64, stop_token_ids=(END,))


def test_the_toy_vocabulary_does_not_round_trip_sampled_ids() -> None:
    pieces = (VOCABULARY.id("he"), VOCABULARY.id("llo"))
    assert VOCABULARY.decode(pieces) == "hello"
    assert VOCABULARY.encode("hello") == (VOCABULARY.id("hello"),)


@pytest.mark.parametrize("text", ["", "hello", "caf\u00e9 \U0001f680", "<|im_end|>", "a\r\nb", "e\u0301", "\x00"])
def test_text_encodes_to_ordinary_ids_and_back(text: str) -> None:
    ids = VOCABULARY.encode(text)
    assert VOCABULARY.decode(ids) == text
    assert not any(VOCABULARY.is_control(i) for i in ids)


def test_control_ids_have_no_text() -> None:
    with pytest.raises(KeyError):
        VOCABULARY.decode((END,))


def test_a_script_of_turns_depends_on_the_prompt_alone() -> None:
    script = recite((1, END), (2, END))
    assert script((0, END), Random(1)) == script((0, END), Random(2)) == (1, END)
    assert script((0, END, 1, END, 9, END), Random(1)) == (2, END)


@pytest.mark.anyio
async def test_latency_does_not_change_what_is_sampled() -> None:
    slow = ScriptedPolicy(terminal_script(), first_s=choice(1, (0.1, 5.0)), token_s=choice(2, (0.0, 1.0)), chunk=3)
    fast = ScriptedPolicy(terminal_script())
    for seed in range(20):
        sampling = Sampling(max_tokens=64, seed=seed, stop_token_ids=(END,))
        assert await slow.generate((1, 2), sampling) == await fast.generate((1, 2), sampling)
    assert anyio.current_time() > 1.0


@pytest.mark.anyio
async def test_a_shorter_limit_cuts_the_same_turn() -> None:
    policy = ScriptedPolicy(terminal_script(("echo hello > f",), final=0, malformed=0, cut=0, empty=0))
    whole = await policy.generate((1,), SAMPLING)
    cut = await policy.generate((1,), Sampling(max_tokens=3, stop_token_ids=(END,)))
    assert cut.token_ids == whole.token_ids[:3]
    assert (whole.finish_reason, cut.finish_reason) == (FinishReason.STOP, FinishReason.LENGTH)


@pytest.mark.anyio
async def test_every_request_is_counted_once_however_it_ends() -> None:
    def fault(request: object) -> EngineError | None:
        return EngineError("planned") if policy.started == 3 else None

    policy = ScriptedPolicy(terminal_script(), first_s=constant(1.0), fault=fault)
    await policy.generate((1,), SAMPLING)
    with anyio.move_on_after(0.5):
        await policy.generate((1,), SAMPLING)
    with pytest.raises(EngineError):
        await policy.generate((1,), SAMPLING)
    assert (policy.started, policy.finished, policy.cancelled, policy.failed) == (3, 1, 1, 1)
    assert not policy.open


@pytest.mark.anyio
async def test_an_engine_that_ignores_cancels_is_busy_until_the_end() -> None:
    policy = ScriptedPolicy(recite((1, 2, 3, END)), first_s=constant(1.0), token_s=constant(1.0), ignores_cancel=True)
    with anyio.move_on_after(1.5):
        await policy.generate((1,), SAMPLING)
    assert (policy.cancelled, policy.orphans) == (1, 1)
    await anyio.sleep(2.4)
    assert policy.orphans == 1
    await anyio.sleep(0.2)
    assert policy.orphans == 0


@pytest.mark.anyio
async def test_the_version_is_pinned_when_the_request_is_sent() -> None:
    policy = ScriptedPolicy(recite((1, END)), first_s=constant(1.0))
    seen: list[Completion] = []

    async def ask() -> None:
        seen.append(await policy.generate((1,), SAMPLING))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(0.5)
        policy.weight_version = "1"
    assert seen[0].weight_version == "0"


@pytest.mark.parametrize("backend", list(Backend))
def test_an_hour_of_virtual_time_costs_nothing(backend: Backend) -> None:
    async def wait() -> float:
        start = anyio.current_time()
        with anyio.move_on_after(3600):
            await anyio.sleep_forever()
        return anyio.current_time() - start

    assert run_virtual(wait, backend=backend) == 3600


def test_a_deadlock_is_an_error_on_asyncio() -> None:
    async def wait() -> None:
        await anyio.Event().wait()

    with pytest.raises(DeadlockError):
        run_virtual(wait, backend=Backend.ASYNCIO)
