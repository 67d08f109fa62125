"""The head start: the first call of a loop finds its generation under way, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from obsspec.rollout.head_start import open_head_start
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.testing import ScriptedPolicy, terminal_script
from obsspec.testing.delays import constant
from obsspec.testing.scripts import toy_renderer
from obsspec.values import EngineError, GenerationKey

pytestmark = pytest.mark.anyio

SCRIPT = terminal_script(malformed=0, cut=0, empty=0)


def policy(**settings: object) -> ScriptedPolicy:
    return ScriptedPolicy(SCRIPT, first_s=constant(1.0), token_s=constant(0.1), **settings)  # pyright: ignore


def first_key(seed: str = "r") -> GenerationKey:
    key = RolloutRules(toy_renderer(), Limits(), seed).first("say hello").key
    assert key is not None
    return key


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.05, 60.0])
async def test_the_first_call_gets_what_was_started_and_hears_of_every_token(after_s: float) -> None:
    engine, key, heard = policy(), first_key(), list[int]()
    expected = await policy().generate(key.prompt, key.sampling)
    async with open_head_start(engine, key) as ahead:
        await anyio.sleep(after_s)
        assert await ahead.generate(key.prompt, key.sampling, on_tokens=heard.append) == expected
    assert engine.started == engine.finished == 1
    assert heard[-1] == len(expected.token_ids)
    assert heard == sorted(heard)


async def test_it_is_handed_out_once_and_only_under_its_key() -> None:
    engine, key = policy(), first_key()
    other = replace(key.sampling, seed=key.sampling.seed + 1)
    async with open_head_start(engine, key) as ahead:
        assert await ahead.generate(key.prompt, other) == await policy().generate(key.prompt, other)
        assert engine.started == 2, "what was started is still there"
        for started in (2, 3):
            assert await ahead.generate(key.prompt, key.sampling) == await policy().generate(key.prompt, key.sampling)
            assert engine.started == started
    assert engine.finished == 3


async def test_its_error_is_raised_in_the_call() -> None:
    engine, key = policy(fault=lambda request: EngineError("down")), first_key()
    async with open_head_start(engine, key) as ahead:
        await anyio.sleep(5.0)
        with pytest.raises(EngineError, match="down"):
            await ahead.generate(key.prompt, key.sampling)


async def test_a_call_that_is_cancelled_ends_the_request_and_can_be_made_again() -> None:
    engine, key = policy(), first_key()
    async with open_head_start(engine, key) as ahead:
        with anyio.move_on_after(0.5):
            await ahead.generate(key.prompt, key.sampling)
        await anyio.sleep(0.01)  # of 1 s and more that it would take
        assert not engine.open
        again = await ahead.generate(key.prompt, key.sampling)
    assert again == await policy().generate(key.prompt, key.sampling)


async def test_leaving_ends_a_request_that_nobody_asked_for() -> None:
    engine = policy()

    async def leave() -> None:
        async with open_head_start(engine, first_key()):
            await anyio.sleep(0.5)
            raise KeyError("as it is")

    with pytest.raises(KeyError, match="as it is"):
        await leave()
    assert (engine.open, engine.cancelled) == ({}, 1)
