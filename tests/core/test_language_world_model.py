"""The language world model: one greedy candidate, further ones sampled, every call of the turn, nothing half done."""

from __future__ import annotations

from random import Random

import anyio
import pytest

from obsspec.testing import Request, ScriptedPolicy, toy_hermes_renderer, toy_hermes_vocabulary, toy_renderer
from obsspec.testing.delays import constant
from obsspec.testing.scripts import Script
from obsspec.values import Context, EngineError, Observation, Prediction, PredictionCutError, Priority, Tokens, ToolCall
from obsspec.world.language import LanguageWorldModel

pytestmark = pytest.mark.anyio

RENDERER = toy_renderer()
LS = ToolCall("bash", {"command": "ls"})
CONTEXT = Context(RENDERER.start("go"), RENDERER.call("ls"), (LS,))


def noisy(prompt: Tokens, random: Random) -> Tokens:
    return RENDERER.answer(str(random.randrange(1000)))


async def ask(script: Script, context: Context = CONTEXT, breadth: int = 1) -> tuple[list[Prediction], list[Request]]:
    asked: list[Request] = []
    engine = ScriptedPolicy(script, first_s=constant(0.1), fault=asked.append)
    emitted: list[Prediction] = []
    await LanguageWorldModel(engine, RENDERER).predict(context, breadth, emitted.append)
    return emitted, asked


async def test_the_prompt_is_the_policys_own_history_and_an_opened_observation() -> None:
    _, (request,) = await ask(noisy)
    assert request.prompt == RENDERER.open_observation(CONTEXT.prompt, CONTEXT.completion, ())
    assert request.prompt[: len(CONTEXT.prompt)] == CONTEXT.prompt
    assert request.priority is Priority.SPECULATIVE


async def test_the_first_candidate_is_greedy_and_the_others_are_samples_with_seeds_of_their_own() -> None:
    emitted, asked = await ask(noisy, breadth=4)
    assert sorted(request.sampling.temperature for request in asked) == [0.0, 1.0, 1.0, 1.0]
    assert len({request.sampling.seed for request in asked}) == 4
    assert len({prediction.observations for prediction in emitted}) > 1
    assert all(0.0 < prediction.confidence <= 1.0 for prediction in emitted)
    assert sorted((await ask(noisy, breadth=4))[0], key=repr) == sorted(emitted, key=repr)


async def test_all_candidates_run_at_once() -> None:
    start = anyio.current_time()
    await ask(noisy, breadth=4)
    assert anyio.current_time() - start == pytest.approx(0.1)


async def test_every_call_of_a_turn_is_predicted_after_the_one_before() -> None:
    vocabulary, renderer = toy_hermes_vocabulary(), toy_hermes_renderer()
    closed = vocabulary.control("</tool_response>")
    asked: list[Request] = []

    def script(prompt: Tokens, random: Random) -> Tokens:
        return (*vocabulary.encode("second\n" if closed in prompt else "first\n"), closed)

    context = Context(renderer.start("go"), (vocabulary.control("<|im_end|>"),), (LS, LS))
    emitted: list[Prediction] = []
    await LanguageWorldModel(ScriptedPolicy(script, fault=asked.append), renderer).predict(context, 1, emitted.append)
    assert [o.text for o in emitted[0].observations] == ["first", "second"]
    first = renderer.open_observation(context.prompt, context.completion, (Observation("first"),))
    assert asked[1].prompt == first


async def test_what_is_cut_or_holds_control_tokens_is_no_candidate() -> None:
    engine = ScriptedPolicy(lambda prompt, random: (120,) * 1000)
    world_model = LanguageWorldModel(engine, RENDERER, max_tokens=8)
    emitted: list[Prediction] = []
    with pytest.raises(PredictionCutError, match="8 tokens"):
        await world_model.predict(CONTEXT, 2, emitted.append)
    assert (emitted, world_model.cut_off) == ([], 2)
    start = CONTEXT.prompt[0]
    assert (await ask(lambda prompt, random: (start, *RENDERER.answer("a"))))[0] == []


async def test_an_engine_error_arrives_as_itself_and_candidates_before_it_stand() -> None:
    def fault(request: Request) -> EngineError | None:
        return EngineError("planned") if request.sampling.temperature > 0 else None

    emitted: list[Prediction] = []
    engine = ScriptedPolicy(noisy, fault=fault)
    with pytest.raises(EngineError, match="planned"):
        await LanguageWorldModel(engine, RENDERER).predict(CONTEXT, 3, emitted.append)
    assert len(emitted) <= 1
    assert not engine.open
