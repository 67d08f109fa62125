"""The suites pass honest parts, and find each broken promise."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from obsspec.protocols import Emit, OnTokens, Policy, Sandbox, WorldModel
from obsspec.testing import (
    Move,
    Request,
    ScriptedPolicy,
    ScriptedSandbox,
    ScriptedWorldModel,
    always,
    oracle,
    seeded_answers,
    terminal_script,
    toy_renderer,
    toy_shell,
    toy_shell_delay,
)
from obsspec.testing.conformance import BrokenPromiseError, check_policy, check_sandbox, check_world_model
from obsspec.testing.conformance.sandbox import bash
from obsspec.testing.delays import constant, uniform
from obsspec.testing.sandbox import Executed
from obsspec.values import (
    Completion,
    Context,
    EngineError,
    Exchange,
    FinishReason,
    Guard,
    Observation,
    Priority,
    Refused,
    Sampling,
    Tokens,
    ToolCall,
)
from obsspec.world.language import LanguageWorldModel

pytestmark = pytest.mark.anyio

RENDERER = toy_renderer()
PROMPTS = [RENDERER.start("list"), RENDERER.start("read the file"), RENDERER.start("say hello")]
SAMPLING = Sampling(max_tokens=40, stop_token_ids=RENDERER.stop_token_ids)
SCRIPT = terminal_script(final=0.1, malformed=0.1, cut=0.0, empty=0.0)


def engine(**options: Any) -> ScriptedPolicy:
    return ScriptedPolicy(SCRIPT, first_s=uniform(1, 0.01, 0.2), token_s=constant(0.01), **options)


async def policy_suite(policy: Policy, served_by: ScriptedPolicy, **options: Any) -> None:
    @asynccontextmanager
    async def factory() -> AsyncGenerator[Policy]:
        yield policy

    async def open_requests() -> int:
        return len(served_by.open) + served_by.orphans

    await check_policy(factory, prompts=PROMPTS, sampling=SAMPLING, open_requests=open_requests, **options)


async def test_the_scripted_policy_keeps_its_promises() -> None:
    policy = engine()
    await policy_suite(policy, policy)


async def test_an_engine_that_is_not_exact_is_not_held_to_equality() -> None:
    def noisy(request: Request, completion: Completion) -> Completion:
        return replace(completion, logprobs=tuple(x - request.number * 1e-6 for x in completion.logprobs))

    policy = engine(spoil=noisy)
    await policy_suite(policy, policy, exact=False)
    with pytest.raises(BrokenPromiseError, match="equal calls get equal results"):
        await policy_suite(policy, policy)


class Wrapped:
    """A policy client with a flaw: what it does instead of `generate`."""

    def __init__(self, inner: ScriptedPolicy, generate: Callable[..., Awaitable[Completion]]) -> None:
        self._inner = inner
        self._generate = generate

    @property
    def weight_version(self) -> str:
        return self._inner.weight_version

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        return await self._generate(self._inner, prompt, sampling, priority, on_tokens)


async def loses_a_logprob(inner: ScriptedPolicy, *call: Any) -> Completion:
    found = await inner.generate(call[0], call[1], on_tokens=call[3])
    return replace(found, logprobs=found.logprobs[1:])


async def drops_the_stop_token(inner: ScriptedPolicy, *call: Any) -> Completion:
    found = await inner.generate(call[0], call[1], on_tokens=call[3])
    return replace(found, token_ids=found.token_ids[:-1], logprobs=found.logprobs[:-1])


async def says_length_at_a_stop(inner: ScriptedPolicy, *call: Any) -> Completion:
    return replace(await inner.generate(call[0], call[1], on_tokens=call[3]), finish_reason=FinishReason.LENGTH)


async def ignores_the_limit(inner: ScriptedPolicy, *call: Any) -> Completion:
    return await inner.generate(call[0], replace(call[1], max_tokens=40), on_tokens=call[3])


async def forgets_on_tokens(inner: ScriptedPolicy, *call: Any) -> Completion:
    return await inner.generate(call[0], call[1])


async def tells_the_same_number_twice(inner: ScriptedPolicy, *call: Any) -> Completion:
    found = await inner.generate(call[0], call[1], on_tokens=call[3])
    if call[3] is not None:
        call[3](len(found.token_ids))
    return found


async def ignores_the_seed(inner: ScriptedPolicy, *call: Any) -> Completion:
    return await inner.generate(PROMPTS[0], replace(call[1], seed=0), on_tokens=call[3])


async def depends_on_priority(inner: ScriptedPolicy, *call: Any) -> Completion:
    seed = call[1].seed + (call[2] is Priority.SPECULATIVE)
    return await inner.generate(call[0], replace(call[1], seed=seed), on_tokens=call[3])


async def depends_on_company(inner: ScriptedPolicy, *call: Any) -> Completion:
    seed = call[1].seed + 1000 * len(inner.open)
    return await inner.generate(call[0], replace(call[1], seed=seed), on_tokens=call[3])


async def finishes_what_was_cancelled(inner: ScriptedPolicy, *call: Any) -> Completion:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(60)
        return await inner.generate(call[0], call[1], on_tokens=call[3])


@pytest.mark.parametrize(
    ("flaw", "promise"),
    [
        (drops_the_stop_token, "reported a stop but returned no stop token"),
        (loses_a_logprob, "logprobs for"),
        (says_length_at_a_stop, "a stop token ends with STOP"),
        (ignores_the_limit, "gives no more tokens"),
        (forgets_on_tokens, "told of all tokens"),
        (tells_the_same_number_twice, "on_tokens only grows"),
        (ignores_the_seed, "make a difference"),
        (depends_on_priority, "equal calls get equal results"),
        (depends_on_company, "equal calls get equal results"),
        (finishes_what_was_cancelled, "ends promptly"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_policy_that_breaks_a_promise_is_found(flaw: Callable[..., Any], promise: str) -> None:
    inner = engine()
    with pytest.raises((BrokenPromiseError, EngineError), match=promise):
        await policy_suite(Wrapped(inner, flaw), inner)


async def test_an_engine_that_goes_on_after_a_cancel_is_found() -> None:
    policy = ScriptedPolicy(SCRIPT, first_s=constant(100.0), ignores_cancel=True)
    with pytest.raises(BrokenPromiseError, match="leaves nothing open; found 1"):
        await policy_suite(policy, policy)


# World models ------------------------------------------------------------------------------------------------------

ANSWERS = seeded_answers(3)
LS, CAT = ToolCall("bash", {"command": "ls"}), ToolCall("bash", {"command": "cat a"})
CONTEXTS = [
    Context(PROMPTS[0], RENDERER.call("ls"), (LS,)),
    Context(PROMPTS[1], RENDERER.call("ls"), (LS, CAT), (Exchange((CAT,), (Observation("x"),)),)),
]


async def world_model_suite(world_model: WorldModel, probe: Callable[[], int]) -> None:
    @asynccontextmanager
    async def factory() -> AsyncGenerator[WorldModel]:
        yield world_model

    async def open_requests() -> int:
        return probe()

    await check_world_model(factory, contexts=CONTEXTS, open_requests=open_requests)


async def test_the_scripted_world_model_keeps_its_promises() -> None:
    world_model = ScriptedWorldModel(oracle(ANSWERS), always(Move.RIGHT, Move.WRONG), delay_s=constant(0.1))
    with pytest.raises(BrokenPromiseError, match="at most `breadth` candidates"):
        await world_model_suite(world_model, lambda: world_model.open)
    honest = ScriptedWorldModel(oracle(ANSWERS), always(Move.RIGHT), delay_s=constant(0.1))
    await world_model_suite(honest, lambda: honest.open)


async def test_the_language_world_model_keeps_its_promises() -> None:
    world_engine = ScriptedPolicy(SCRIPT, first_s=constant(0.05), token_s=constant(0.01))
    await world_model_suite(LanguageWorldModel(world_engine, RENDERER), lambda: len(world_engine.open))


@pytest.mark.parametrize(
    ("move", "promise"), [(Move.MISCOUNT, "one observation for each call")], ids=lambda value: str(value)
)
async def test_a_world_model_that_breaks_a_promise_is_found(move: Move, promise: str) -> None:
    world_model = ScriptedWorldModel(oracle(ANSWERS), always(move))
    with pytest.raises(BrokenPromiseError, match=promise):
        await world_model_suite(world_model, lambda: 0)


async def test_a_world_model_that_changes_its_mind_is_found() -> None:
    class Fickle(ScriptedWorldModel):
        async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
            self._plan = always(Move.RIGHT if self.started < 3 else Move.WRONG)
            await super().predict(context, breadth, emit)

    with pytest.raises(BrokenPromiseError, match="equal questions"):
        await world_model_suite(Fickle(oracle(ANSWERS)), lambda: 0)


# Sandboxes ---------------------------------------------------------------------------------------------------------


class Boxes:
    """Opens scripted sandboxes with a toy shell, and counts what runs in them."""

    def __init__(self, kind: type[ScriptedSandbox] = ScriptedSandbox) -> None:
        self._kind = kind
        self._opened: list[ScriptedSandbox] = []

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sandbox]:
        self._opened.append(self._kind(toy_shell, delay_s=toy_shell_delay))
        yield self._opened[-1]

    async def running(self) -> int:
        return sum(sandbox.running for sandbox in self._opened)


async def test_the_scripted_sandbox_keeps_its_promises() -> None:
    boxes = Boxes()
    await check_sandbox(boxes.open, running=boxes.running)


class ForgetsItsState(ScriptedSandbox):
    async def execute(self, call: ToolCall) -> Observation:
        self.log.clear()
        return await super().execute(call)


class GoesOnAfterCancel(ScriptedSandbox):
    """Answers the cancellation, but what it started runs to its end."""

    async def execute(self, call: ToolCall) -> Observation:
        try:
            return await super().execute(call)
        except anyio.get_cancelled_exc_class():
            self.log[-1].observation = Observation("")
            raise


class NeverGivesUp(ScriptedSandbox):
    async def execute(self, call: ToolCall) -> Observation:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20 if "sleep" in call.command else 0)
            return await super().execute(call)


class HidesExitCodes(ScriptedSandbox):
    async def execute(self, call: ToolCall) -> Observation:
        return replace(await super().execute(call), exit_code=0)


class CallsSilenceOutput(ScriptedSandbox):
    async def execute(self, call: ToolCall) -> Observation:
        return replace(await super().execute(call), empty=False)


class TellsTheTime(ScriptedSandbox):
    async def execute(self, call: ToolCall) -> Observation:
        observation = await super().execute(call)
        return replace(observation, text=f"{observation.text} {id(self)}") if "g" in call.command else observation


class RunsWhateverWasBefore(ScriptedSandbox):
    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        return await self.execute(call)


class LooksAtTheLastAnswerOnly(ScriptedSandbox):
    """Waits for its number, then takes the last answer for the whole history."""

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        answer = await super().execute_if(call, guard)
        other = isinstance(answer, Refused) and len(self.calls) == guard.after and self.calls[-1].command == "true"
        return await self.execute(call) if other else answer


class RunsAgainWhenAskedAgain(ScriptedSandbox):
    answered: Guard | None = None

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        answer = await super().execute_if(call, guard)
        again, self.answered = self.answered == guard, guard
        return await self.execute(call) if isinstance(answer, Observation) and again else answer


class RunsWhatWasWithdrawn(ScriptedSandbox):
    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        try:
            return await super().execute_if(call, guard)
        except anyio.get_cancelled_exc_class():
            self.log.append(Executed(call, 0.0, observation=Observation("")))
            raise


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (RunsWhateverWasBefore, "another answer is refused"),
        (LooksAtTheLastAnswerOnly, "a guard is on the whole history"),
        (RunsAgainWhenAskedAgain, "a repeated guarded call|a call whose guard holds runs"),
        (RunsWhatWasWithdrawn, "a call that was withdrawn does not run"),
        (ForgetsItsState, "variables last"),
        (GoesOnAfterCancel, "a cancelled command does not go on"),
        (NeverGivesUp, "ends promptly|does not block"),
        (HidesExitCodes, "exits with 3, not 0"),
        (CallsSilenceOutput, "what printed nothing is empty"),
        (TellsTheTime, "the same commands in a fresh sandbox"),
    ],
)
async def test_a_sandbox_that_breaks_a_promise_is_found(kind: type[ScriptedSandbox], promise: str) -> None:
    boxes = Boxes(kind)
    with pytest.raises(BrokenPromiseError, match=promise):
        await check_sandbox(boxes.open, running=boxes.running)


async def test_the_toy_shell_is_a_shell() -> None:
    sandbox = ScriptedSandbox(toy_shell)
    for command, text in [
        ("echo a > f", ""),
        ("cat f", "a"),
        ("cd /x; pwd", "/x"),
        ("false", "false: command not found"),
    ]:
        assert text in (await sandbox.execute(bash(command))).text
