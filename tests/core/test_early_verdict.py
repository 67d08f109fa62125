"""A prediction that differs from what is printed already is dropped at once; nothing is kept before the end."""

from __future__ import annotations

import unicodedata

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.protocols import Emit, StreamingSandbox
from obsspec.render.hermes import HermesRenderer
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.commands import Command, Discard, DiscardReason, ExecuteGuarded, Generate
from obsspec.speculation.contradiction import contradicts
from obsspec.speculation.controller import Controller
from obsspec.speculation.gate import OpenGate
from obsspec.testing import ScriptedSandbox
from obsspec.testing.scripts import toy_renderer
from obsspec.values import (
    Completion,
    Context,
    FinishReason,
    Guard,
    Observation,
    Outcome,
    Prediction,
    Refused,
    ToolCall,
)
from tests.core.scene import Candidates, Scene, answer, assert_quiescent, call, recite, says
from tests.core.test_scenarios_c import VOCABULARY, calls, hermes

LS = recite(call("ls"), answer())
OTHERS = ["one two", "one three", "one", "one two three", "", "two"]


def scene(*predicted: str, real: str = "one two three four", share: float = 0.7, **options: object) -> Scene:
    """A tool takes 10 s and tells a share of its answer after 5 s. Predictions come after 1 s."""
    made = Scene(LS, says(real), breadth=len(predicted), tells=share)
    made.world_model = Candidates(lambda _: predicted)
    made.generation_s, made.token_s = 1.0, 1.0
    for name, value in options.items():
        setattr(made, name, value)
    return made


async def open_at(played: Scene, *moments: float) -> list[int]:
    """Requests at the engine at these moments."""
    policy = played.policy = played.make_policy()
    seen: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(played.speculative)
        now = 0.0
        for moment in moments:
            await anyio.sleep(moment - now)
            now = moment
            seen.append(len(policy.open))
        tasks.cancel_scope.cancel()
    return seen


FIRST_TURN_S = 1.0 + 1.0 * (len(call("ls")) - 1)


@pytest.mark.anyio
async def test_a_branch_on_an_observation_that_begins_otherwise_is_dropped_at_the_engine_at_once() -> None:
    half_way = FIRST_TURN_S + 5
    made = scene("one two three four", *OTHERS, generation_s=20.0)
    half_way += 19.0
    assert await open_at(made, half_way - 0.1, half_way + 0.1) == [7, 2]


@pytest.mark.anyio
async def test_the_outcome_is_what_it_would_have_been() -> None:
    for predicted, outcome in ((OTHERS, Outcome.ROLLBACK), ([*OTHERS, "one two three four"], Outcome.MATCH)):
        a, b = await scene(*predicted).both()
        assert b.outcomes == [outcome]
        c, d = await scene(*predicted, share=0.0).both()
        assert a.trajectory.ids == c.trajectory.ids
        assert b.trajectory.agent_s == d.trajectory.agent_s
        assert b.report.discarded_policy_tokens < d.report.discarded_policy_tokens
        assert_quiescent(d)


@pytest.mark.anyio
async def test_what_begins_like_the_prediction_is_not_yet_equal_to_it() -> None:
    """Told everything but the last character, and the last one differs."""
    _, b = await scene("one two three fouR", real="one two three four", share=0.95).both()
    assert b.outcomes == [Outcome.ROLLBACK]


@pytest.mark.anyio
async def test_a_candidate_that_comes_when_it_is_known_to_be_wrong_starts_nothing() -> None:
    made = scene("one five")
    made.world_model = Candidates(lambda _: ["one five"], after_s=7.0)
    _, b = await made.both()
    assert b.outcomes == [Outcome.ROLLBACK], "predicted in time, and different"
    assert [attempt.branches for attempt in b.report.attempts] == [0]
    assert len(made.requests) == 2


@pytest.mark.anyio
async def test_of_calls_that_were_sent_ahead_too() -> None:
    """The second call runs ahead from 2 s on, half of it at 4 s, is asked for at 3 s, and branches stand below it."""
    texts = {1: "first", 2: "second"}
    script = recite(call("a"), call("b"), answer())

    def predict(context: Context) -> list[str]:
        return ["first"] if not context.history else ["second", "sevenths"]

    made = Scene(script, says(*texts.values()), depth=4, breadth=2, guarded=True, tells=0.5)
    made.world_model = Candidates(predict, after_s=0.0)
    made.tool_s, made.generation_s, made.token_s = 4.0, 1.0, 0.25
    _, told = await made.both()
    made.tells = 0.0
    _, silent = await made.both()
    assert told.outcomes == silent.outcomes == [Outcome.MATCH, Outcome.MATCH]
    assert told.report.guarded_ran == 1
    assert told.trajectory.agent_s == silent.trajectory.agent_s


@pytest.mark.anyio
async def test_d11_a_call_sent_ahead_of_what_turns_out_otherwise_is_withdrawn_while_the_tool_still_runs() -> None:
    """Sent at 3 s; the tool that runs from 1 to 11 s is heard at 6 s."""
    asking = 0

    class Sandbox(ScriptedSandbox):
        async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
            nonlocal asking
            asking += 1
            try:
                return await super().execute_if(call, guard)
            finally:
                asking -= 1

    script, answers = recite(call("a"), call("b"), answer()), says("one two three four", "x")
    made = Scene(script, answers, depth=2, guarded=True)
    made.world_model = Candidates(lambda _: ["one five"])
    made.sandbox = Sandbox(answers, delay_s=lambda _: 10.0, tells=lambda _: 0.7)
    seen: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.speculative)
        for seconds in (2.9, 3.0, 0.2):
            await anyio.sleep(seconds)
            seen.append(asking)
        assert [len(made.sandbox.calls), made.sandbox.running] == [1, 1]
    assert seen == [0, 1, 0]
    assert [each.command for each in made.sandbox.calls] == ["a", "b"]


def test_what_a_call_that_runs_ahead_was_heard_to_say_counts_once_it_is_asked_for() -> None:
    """Its answer may begin to arrive before the one that comes before it, where ways differ."""
    rules = RolloutRules(toy_renderer(), Limits(), "r")
    controller = Controller(rules, OpenGate(), depth=2, breadth=2)
    controller.guarded = True

    def started(commands: list[Command]) -> Generate:
        return next(command for command in commands if isinstance(command, Generate))

    def ends(node: int, command: str) -> list[Command]:
        ids = call(command)
        return controller.completed(node, Completion(ids, (0.0,) * len(ids), FinishReason.STOP))

    key = rules.first("go").key
    assert key is not None
    first = started(controller.requested(key))
    ends(first.node, "a")
    second = started(controller.predicted(first.node, _predicted("first")))
    assert any(isinstance(command, ExecuteGuarded) for command in ends(second.node, "b"))
    third = [started(controller.predicted(second.node, _predicted(text))) for text in ("second", "seventh")]
    assert controller.partly_observed(2, "sec") == []
    assert not any(isinstance(command, Discard) for command in controller.observed([Observation("first")]))
    discarded = [each for each in controller.requested(second.key) if isinstance(each, Discard)]
    assert discarded == [Discard(third[1].node, DiscardReason.MISMATCH)]
    controller.closed()
    assert controller.nodes == 0


@pytest.mark.anyio
async def test_c15_each_call_of_a_turn_is_heard_by_itself() -> None:
    script = recite(hermes(calls("a", "b")), hermes("done"))
    made = Scene(script, says("first", "second"), renderer=HermesRenderer(VOCABULARY), breadth=2, tells=0.5)
    made.generation_s = 30.0

    class Both:
        async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
            for texts in (("first", "seven"), ("first", "second")):
                emit(_predicted(*texts))

        def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
            return None

    made.world_model = Both()
    _, played = await made.both()
    assert played.outcomes == [Outcome.MATCH]
    dropped = [span for span in played.report.spans if span.reason == "mismatch"]
    assert [span.end_s for span in dropped] == [80.0 + 30.0 + 10.0 + 5.0], "when the second call was half-way"


def _predicted(*texts: str) -> Prediction:
    return Prediction(tuple(map(Observation, texts)), "listed", 0.5)


@pytest.mark.anyio
async def test_a_sandbox_that_says_nothing_early_is_used_as_it_is() -> None:
    made = scene("two", share=0.0)
    sandbox = made.make_sandbox()
    assert isinstance(sandbox, StreamingSandbox)
    _, played = await made.both()
    assert played.outcomes == [Outcome.ROLLBACK]


# The comparison ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predicted", "beginning", "wrong"),
    [
        ("abc", "abc", False),
        ("abc", "ab", False),
        ("abc", "", False),
        ("abc", "abd", True),
        ("abc", "abcd", True),
        ("abc", "abc\n", False),  # a template may trim it
        ("abc", "abc\nd", True),
        (" abc", "abc", False),
        ("abc", "\nabc", False),
        ("", "\n ", False),
        ("", "x", True),
        ("10\n(exit_code=0)", "1\n", True),
        ("1\n(exit_code=0)", "10", True),
        ("\u00e9", "e\u0301", False),  # the same character, normalised
        ("e", "e\u0301", False),
        ("e\u0301", "ex", False),
        ("\u00e9", "ex", False),
        ("\ud800", "?", False),  # what can not be encoded may become anything
        ("a\u00e9b", "a\u00e9c", True),
    ],
)
def test_only_what_no_tokenizer_could_make_equal_is_wrong(predicted: str, beginning: str, wrong: bool) -> None:
    assert contradicts(predicted, beginning) is wrong


TEXTS = st.text("abe\u0301\u00e9\u0323\ufb01fi \n1\u00bd\u212b\uac00\u1100\u1161", max_size=8)


@given(TEXTS, TEXTS, st.integers(0, 8), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_b08_texts_that_normalise_to_the_same_contradict_at_no_length(
    real: str, predicted: str, length: int, form: str
) -> None:
    def tokens(text: str) -> str:
        return unicodedata.normalize(form, text.strip())

    for text in (predicted, unicodedata.normalize(form, real), f"\n{real} "):
        if tokens(text) == tokens(real):
            assert not contradicts(text, real[:length])


@given(st.text(), st.text(), st.integers(0, 20))
def test_what_is_equal_never_contradicts_and_more_of_a_text_never_takes_a_verdict_back(
    predicted: str, real: str, length: int
) -> None:
    assert not contradicts(real, real[:length])
    if contradicts(predicted, real[:length]):
        assert contradicts(predicted, real)
