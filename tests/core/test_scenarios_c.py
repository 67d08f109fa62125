"""Tool calls: order, cut and malformed turns, and limits."""

from __future__ import annotations

import json
from itertools import pairwise

import anyio
import pytest

from obsspec.render.hermes import HermesRenderer
from obsspec.rollout.rules import Limits
from obsspec.speculation.trace import Fate, SpanKind
from obsspec.testing import Forecast, Move, ScriptedWorldModel, always, oracle, toy_renderer, toy_shell, toy_vocabulary
from obsspec.testing.world_model import Plan
from obsspec.values import Context, FinishReason, Observation, Outcome, StopReason, Tokens
from tests.core.scene import Scene, answer, call, recite, says

pytestmark = pytest.mark.anyio

VOCABULARY = toy_vocabulary()
END = VOCABULARY.control("<|im_end|>")


def hermes(text: str) -> Tokens:
    return (*VOCABULARY.encode(text), END)


def calls(*commands: str) -> str:
    return "\n".join(
        f"<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': command}})}\n</tool_call>"
        for command in commands
    )


def hermes_scene(*turns: str) -> Scene:
    return Scene(recite(*map(hermes, turns)), toy_shell, renderer=HermesRenderer(VOCABULARY))


async def test_c15_calls_of_one_turn_run_in_order_and_match_jointly() -> None:
    scene = hermes_scene(calls("echo one > f", "cat f"), "ok")
    _, played = await scene.both()
    assert [o.text for o in played.trajectory.turns[0].observations] == ["", "one"]
    assert played.outcomes == [Outcome.MATCH], "one attempt for the turn, not one per call"
    assert played.trajectory.turns[0].tool_start_s[1] >= played.trajectory.turns[0].tool_end_s[0]


@pytest.mark.parametrize(
    ("predicted", "outcome"),
    [
        (("", "one"), Outcome.MATCH),
        (("", "two"), Outcome.ROLLBACK),
        (("one", ""), Outcome.ROLLBACK),
        (("",), Outcome.FAILED),
        (("", "one", ""), Outcome.FAILED),
    ],
)
async def test_c15_all_observations_of_a_turn_must_be_predicted(predicted: tuple[str, ...], outcome: Outcome) -> None:
    def oracle(context: Context) -> tuple[Observation, ...]:
        return tuple(map(Observation, predicted))

    scene = hermes_scene(calls("echo one > f", "cat f"), "ok")
    scene.world_model = ScriptedWorldModel(oracle, always(Move.RIGHT))
    _, played = await scene.both()
    assert played.outcomes == [outcome]


async def test_c15_two_slow_reads_take_their_times_one_after_the_other() -> None:
    scene = hermes_scene(calls("cat f", "cat g"), "ok")
    a, b = await scene.both()
    assert a.trajectory.tool_s == b.trajectory.tool_s == 20.0


async def test_c16_a_call_cut_by_the_length_limit_is_never_executed_nor_speculated_on() -> None:
    text = calls("rm -rf /tmp/x")
    scene = hermes_scene(text, "ok")
    scene.limits = Limits(8, len(hermes(text)) - 1, 4000)  # the end-of-turn token is what is missing: the call parses
    _, played = await scene.both()
    assert played.trajectory.stop is StopReason.CUT
    assert played.trajectory.turns[-1].completion.finish_reason is FinishReason.LENGTH
    assert played.commands == []
    assert played.report.predictions_started == 0


async def test_c16_a_cut_speculative_turn_is_not_predicted_on() -> None:
    code, end = call("")
    scene = Scene(recite(call("ls"), (code, *VOCABULARY.encode("rm -rf /tmp/x"))), says("a"), depth=3)
    _, played = await scene.both()
    assert played.trajectory.stop is StopReason.CUT
    assert played.commands == ["ls"]
    assert played.report.predictions_started == 1
    assert end not in played.trajectory.turns[-1].completion.token_ids


async def test_c16_cut_and_malformed_are_told_apart() -> None:
    cut = hermes_scene(calls("ls"), "ok")
    cut.limits = Limits(8, 10, 4000)
    malformed = hermes_scene('<tool_call>\n{"name": "bash"', "ok")
    assert (await cut.both())[1].trajectory.stop is StopReason.CUT
    played = (await malformed.both())[1]
    assert played.trajectory.stop is StopReason.FINAL
    assert played.trajectory.turns[0].error


@pytest.mark.parametrize(
    "body",
    [
        '{"cmd": "ls"',
        "[]",
        "null",
        '"ls"',
        '{"name": "frob", "arguments": {}}',
        '{"name": [], "arguments": {}}',
        '{"name": "bash", "arguments": null}',
        '{"name": "bash", "arguments": []}',
        '{"name": "bash", "arguments": {"command": ["ls"]}}',
        '{"name": "bash", "arguments": {"command": null}}',
        '{"name": "bash", "arguments": {"command": "\\ud800"}}',
        "[" * 2000,
        "",
    ],
    ids=lambda body: body[:40],
)
async def test_c17_a_malformed_call_is_an_error_observation_and_the_rollout_goes_on(body: str) -> None:
    scene = hermes_scene(f"<tool_call>{body}</tool_call>", "ok")
    scene.limits = Limits(8, 3000, 9000)
    _, played = await scene.both()
    first = played.trajectory.turns[0]
    assert first.error.startswith(("malformed tool call", "unknown tool"))
    assert first.observations == (Observation(first.error),)
    assert played.trajectory.answer == "ok"
    assert played.commands == []
    assert played.report.predictions_started == 0


async def test_c17_one_malformed_call_spoils_its_whole_turn() -> None:
    scene = hermes_scene(f"{calls('ls')}<tool_call>null</tool_call>", "ok")
    _, played = await scene.both()
    assert played.commands == []
    assert played.trajectory.turns[0].error


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("max_turns", [1, 2, 5])
async def test_c19_limits_count_committed_turns_and_nothing_is_speculated_past_them(depth: int, max_turns: int) -> None:
    scene = Scene(recite(call("ls")), says("a"), limits=Limits(max_turns, 50, 4000), depth=depth)
    _, played = await scene.both()
    assert played.trajectory.stop is StopReason.TURN_LIMIT
    assert len(played.commands) == len(played.trajectory.turns) == max_turns
    assert len(scene.requests) == max_turns, "every branch was right, and none was started beyond the limit"
    assert max(span.level for span in played.report.spans) == max_turns - 1
    assert played.report.predictions_started == (max_turns - 1 if depth else 0)


async def test_c19_an_endless_loop_ends_at_the_context_limit_too() -> None:
    scene = Scene(recite(call("ls")), says("x" * 10), limits=Limits(10_000, 50, 300), depth=2)
    _, played = await scene.both()
    assert played.trajectory.stop is StopReason.CONTEXT_LIMIT
    assert len(played.trajectory.ids) <= 300


async def test_c19_the_last_turn_has_no_prediction_to_wait_for() -> None:
    scene = Scene(recite(call("ls"), answer()), toy_shell, limits=Limits(1, 50, 4000))
    scene.renderer = toy_renderer()
    start = anyio.current_time()
    _, played = await scene.both()
    assert played.outcomes == [Outcome.GATED]
    assert anyio.current_time() - start == pytest.approx(22.0)


def wrong_at(depth: int, *otherwise: Move) -> Plan:
    """Right, but for the first turn this far below the committed one that is predicted."""
    done: list[int] = []

    def plan(context: Context, breadth: int) -> Forecast:
        if not done and len(context.history) - context.committed == depth:
            done.append(depth)
            return Forecast((Move.WRONG,))
        return Forecast(otherwise or (Move.RIGHT,))

    return plan


@pytest.mark.parametrize("depth", [1, 2])
async def test_c20_only_committed_turns_are_seen_and_discarded_ones_leave_their_traces(depth: int) -> None:
    scene = Scene(recite(call("echo a > f"), call("cat f"), call("ls"), answer()), toy_shell, depth=depth)
    scene.plan = wrong_at(depth - 1)
    _, played = await scene.both()
    assert played.commands == ["echo a > f", "cat f", "ls"]
    assert isinstance(played.world_model, ScriptedWorldModel)
    learned = played.world_model.learned
    assert [context.calls[0].command for context, _ in learned] == played.commands, "hooks see committed turns"
    assert [observations for _, observations in learned] == [turn.observations for turn in played.trajectory.turns[:3]]
    dropped = [span for span in played.report.spans if span.kind is SpanKind.GENERATE and span.fate is Fate.DISCARDED]
    assert dropped
    assert all(span.speculative and span.reason and span.end_s is not None and span.tokens for span in dropped)
    assert sum(span.tokens for span in dropped) == played.report.discarded_policy_tokens


@pytest.mark.parametrize("breadth", [1, 3])
async def test_c21_a_call_of_an_uncommitted_turn_is_predicted_and_never_executed(breadth: int) -> None:
    turns = [call("echo a > f"), call("cat f"), call("rm f"), call("ls")]
    scene = Scene(recite(*turns, answer()), toy_shell, depth=3, breadth=breadth, prediction_s=0.5)
    scene.plan = always(Move.WRONG, Move.RIGHT, Move.NEAR)
    predicted: list[tuple[float, str]] = []

    def truth(context: Context) -> tuple[Observation, ...]:
        predicted.append((anyio.current_time(), context.calls[0].command))
        return oracle(toy_shell)(context)

    scene.world_model = ScriptedWorldModel(truth, scene.plan)
    _, played = await scene.both()
    assert played.commands == ["echo a > f", "cat f", "rm f", "ls"]
    log = played.sandbox.log
    begun = {entry.call.command: entry.start_s for entry in log}
    assert any(at_s < begun[command] for at_s, command in predicted), "calls were predicted before they were committed"
    assert all(later.start_s >= (entry.end_s or 0.0) for entry, later in pairwise(log))
    generations = [span for span in played.report.spans if span.kind is SpanKind.GENERATE]
    for level in range(5):
        assert sum(span.fate is Fate.KEPT for span in generations if span.level == level) == 1, "claimed exactly once"
