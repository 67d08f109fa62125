"""Guarded calls: sent ahead, run exactly if the loop will make them, and handed to it."""

from __future__ import annotations

import anyio
import pytest

from obsspec.history import START, History, Judgement, extend, guard_after
from obsspec.render.hermes import HermesRenderer
from obsspec.rollout.rules import Limits
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.speculation.trace import Fate, Span, SpanKind
from obsspec.testing import Move, always, oracle, run_virtual
from obsspec.testing.sandbox import Mishap
from obsspec.testing.virtual_clock import Backend, seed_order
from obsspec.testing.world_model import ScriptedWorldModel
from obsspec.values import (
    Exchange,
    GenerationKey,
    Guard,
    Observation,
    Outcome,
    SandboxError,
    StopReason,
    ToolCall,
)
from tests.core.scene import Played, Scene, answer, call, recite, says
from tests.core.test_scenarios_c import VOCABULARY, calls, hermes

COMMANDS = [f"c{number}" for number in range(11)]
TURNS = recite(*map(call, COMMANDS), answer())
T, G = 1.69, 1.0


def reference(**options: object) -> Scene:
    """The reference regime: tools are transport, predictions come at once and are right."""
    scene = Scene(TURNS, says(*map(str, range(20))), limits=Limits(20, 200, 4000), depth=4)
    scene.tool_s, scene.way_s, scene.generation_s, scene.prediction_s = 0.0, T / 2, G, 0.0
    for name, value in options.items():
        setattr(scene, name, value)
    return scene


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


def executions(played: Played) -> list[Span]:
    return [span for span in played.report.spans if span.kind is SpanKind.EXECUTE]


# What it is for ----------------------------------------------------------------------------------------------------


def hidden(scene: Scene) -> float:
    """Of the tool time of the sequential rollout, the share that the speculative one does not wait for."""
    a, b = run_virtual(scene.both, backend=Backend.ASYNCIO)
    assert a.trajectory.tool_s == pytest.approx(len(COMMANDS) * T)
    return (a.trajectory.agent_s - b.trajectory.agent_s) / a.trajectory.tool_s


def test_with_guards_depth_hides_what_observation_speculation_alone_cannot() -> None:
    assert hidden(reference(guarded=True)) > 0.95
    assert hidden(reference(guarded=False)) < 0.6
    assert hidden(reference(guarded=True, depth=1)) < 0.8


def test_below_the_sum_of_tool_times() -> None:
    """Where generation is fast, observation speculation can not be faster than the tools one after another."""
    guarded = run_virtual(reference(guarded=True, generation_s=0.1).speculative, backend=Backend.ASYNCIO)
    plain = run_virtual(reference(generation_s=0.1).speculative, backend=Backend.ASYNCIO)
    assert plain.trajectory.agent_s > len(COMMANDS) * T
    assert guarded.trajectory.agent_s < 0.5 * len(COMMANDS) * T


@pytest.mark.anyio
async def test_tool_time_is_what_the_loop_waited_and_the_report_has_what_it_took() -> None:
    played = await reference(guarded=True).speculative()
    assert played.trajectory.tool_s == pytest.approx(10 * G + T)
    spans = executions(played)
    assert [span.level for span in spans] == list(range(1, len(COMMANDS)))
    assert all(span.fate is Fate.KEPT and span.end_s is not None for span in spans)
    assert [span.end_s - span.start_s for span in spans if span.end_s] == pytest.approx([T] * len(spans))
    report = played.report
    assert (report.guarded_sent, report.guarded_ran, report.guarded_refused) == (10, 10, 0)


# What runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [0, 1, 2, 5])
async def test_c20_after_a_mismatch_at_any_depth_the_sandbox_sees_committed_calls_only(wrong: int) -> None:
    def sometimes(number: int) -> Move:
        return Move.WRONG if number == wrong else Move.RIGHT

    scene = reference(guarded=True, way_s=2.0)
    model = scene.make_world_model()
    made = 0
    original = model.predict

    async def predict(context: object, breadth: int, emit: object) -> None:
        nonlocal made
        made += 1
        model._plan = always(sometimes(made - 1))  # pyright: ignore
        await original(context, breadth, emit)  # pyright: ignore

    model.predict = predict  # pyright: ignore
    scene.world_model = model
    _, b = await scene.both()
    assert b.commands == COMMANDS
    assert b.report.guarded_ran < b.report.guarded_sent
    assert Outcome.ROLLBACK in b.outcomes
    assert sum(span.fate is Fate.KEPT for span in executions(b)) == b.report.guarded_ran


@pytest.mark.anyio
async def test_c21_what_a_wrong_prediction_leads_to_is_sent_and_never_run() -> None:
    _, b = await reference(guarded=True, plan=always(Move.WRONG)).both()
    assert b.commands == COMMANDS
    assert b.report.guarded_sent == 10
    assert b.report.guarded_ran == 0


@pytest.mark.anyio
async def test_c21_after_background_jobs_nothing_comes_early() -> None:
    _, b = await reference(guarded=True, jobs=lambda call: True).both()
    assert b.report.guarded_sent == b.report.guarded_refused == 10
    assert b.trajectory.tool_s == pytest.approx(len(COMMANDS) * T, rel=0.6)


@pytest.mark.anyio
@pytest.mark.parametrize("mishap", list(Mishap))
async def test_what_gets_lost_or_repeated_on_the_wire_runs_once(mishap: Mishap) -> None:
    _, b = await reference(guarded=True, mishap=lambda _: mishap).both()
    assert b.commands == COMMANDS
    assert b.report.guarded_ran == 10


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(1, 200, 4000), StopReason.TURN_LIMIT),
        (Limits(2, 200, 4000), StopReason.TURN_LIMIT),
        (Limits(5, 200, 4000), StopReason.TURN_LIMIT),
        (Limits(20, 200, 80), StopReason.CONTEXT_LIMIT),
        (Limits(20, 3, 4000), StopReason.CUT),
    ],
    ids=["1 turn", "2 turns", "5 turns", "context", "turn tokens"],
)
async def test_c19_what_ran_ahead_is_committed_when_a_limit_ends_the_rollout(limits: Limits, stop: StopReason) -> None:
    _, b = await reference(guarded=True, limits=limits).both()
    assert b.trajectory.stop is stop
    assert len(b.commands) == sum(len(turn.calls) for turn in b.trajectory.turns)
    if len(b.trajectory.turns) > 2:
        assert b.report.guarded_ran == len(b.commands) - 1, "the call of the last turn too"


@pytest.mark.anyio
async def test_c21_a_final_turn_is_never_sent() -> None:
    scene = reference(guarded=True, script=recite(call("ls"), answer()))
    _, played = await scene.both()
    assert played.report.guarded_sent == 0
    assert played.commands == ["ls"]


@pytest.mark.anyio
async def test_c15_a_turn_of_several_calls_is_not_sent_ahead_but_counted() -> None:
    """The second call is made after the first one's answer, whatever that is; the calls after the turn come ahead."""
    turns = [("a", "b"), ("c",), ("d", "e"), ("f",), ("g",)]
    script = recite(*(hermes(calls(*commands)) for commands in turns), hermes("ok"))
    _, b = await reference(guarded=True, script=script, renderer=HermesRenderer(VOCABULARY)).both()
    assert b.commands == list("abcdefg")
    assert [span.level for span in executions(b)] == [1, 3, 4]
    assert b.report.guarded_ran == 3


@pytest.mark.anyio
@pytest.mark.parametrize("fault", [0, 1, 3])
async def test_a_sandbox_that_fails_ahead_of_the_loop_fails_where_it_would_have(fault: int) -> None:
    scene = reference(guarded=True, sandbox_fault=lambda number: SandboxError("planned") if number == fault else None)
    _, b = await scene.both()
    assert b.trajectory.stop is StopReason.SANDBOX_ERROR
    assert len(b.trajectory.turns) == fault


# When it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("after_s", [0.5, 1.0, 1.9, 2.0, 2.7, 3.0, 3.4, 4.1, 5.0, 6.9])
async def test_d11_cancelled_at_any_moment_the_sandbox_has_a_beginning_of_the_calls(after_s: float) -> None:
    scene = reference(guarded=True, tool_s=0.5)
    sandbox = scene.sandbox = scene.make_sandbox()
    with anyio.move_on_after(after_s) as scope:
        await scene.speculative()
    assert scope.cancelled_caught
    ran = [entry.call.command for entry in sandbox.log]
    assert ran == COMMANDS[: len(ran)]
    assert sandbox.running == 0
    await anyio.sleep(10)
    assert len(sandbox.log) == len(ran), "nothing is left that could still run"


@pytest.mark.parametrize("seed", range(10))
def test_h07_verdict_answer_and_generation_in_the_same_tick(seed: int) -> None:
    """Every duration is a multiple of one second: what was sent ahead is decided as the next thing ends."""

    async def play() -> None:
        seed_order(seed)
        for plan in (always(Move.RIGHT), always(Move.WRONG), always(Move.WRONG, Move.RIGHT)):
            for way_s in (0.0, 1.0, 2.0):
                scene = reference(guarded=True, plan=plan, breadth=2, way_s=way_s, tool_s=1.0, generation_s=1.0)
                _, played = await scene.both()
                assert played.commands == COMMANDS

    run_virtual(play, backend=Backend.TRIO)


# Where it is off ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_under_strict_versions_nothing_is_sent_ahead() -> None:
    _, played = await reference(guarded=True, strict_version=True).both()
    assert played.report.guarded_sent == 0


@pytest.mark.anyio
async def test_a_sandbox_that_takes_no_guarded_calls_is_used_as_it_is() -> None:
    class Plain:
        def __init__(self) -> None:
            self.calls: list[ToolCall] = []

        async def execute(self, call: ToolCall) -> Observation:
            self.calls.append(call)
            return Observation("0")

    scene = reference(guarded=True, answers=says("0"))
    sandbox = Plain()
    scene.sandbox = sandbox  # pyright: ignore
    played = await scene.speculative()
    assert [c.command for c in sandbox.calls] == COMMANDS
    assert played.report.guarded_sent == 0


@pytest.mark.anyio
@pytest.mark.parametrize("other", [bash("rm -r /"), None], ids=["another call", "no call"])
async def test_a_loop_that_does_not_make_the_call_that_ran_is_stopped(other: ToolCall | None) -> None:
    """A loop that does not do what the continuation says, which guards must not be used with."""
    scene = reference()
    policy, sandbox = scene.make_policy(), scene.make_sandbox()
    model = ScriptedWorldModel(oracle(scene.answers), always(Move.RIGHT))
    settings = SpeculationSettings(depth=4, guarded=True)
    rules = scene.rules

    async def misbehave() -> None:
        async with open_session(policy, model, rules, settings=settings) as session:
            client = session.sandbox(sandbox)
            key = rules.first("go").key
            assert key is not None
            first = await session.policy.generate(key.prompt, key.sampling)
            await anyio.sleep(10)  # the second turn's call is with the sandbox
            seen = await client.execute(rules.parse(first).calls[0])
            second: GenerationKey | None = rules.follow(0, key, first, (seen,)).key
            assert second is not None
            await anyio.sleep(10)  # and has run
            await session.policy.generate(second.prompt, second.sampling)
            if other is None:
                session.check_committed()
            else:
                await client.execute(other)

    with pytest.raises(SandboxError, match="sent ahead"):
        await misbehave()
    assert [c.command for c in sandbox.calls][:2] == COMMANDS[:2]
    assert bash("rm -r /") not in sandbox.calls


# Guards ------------------------------------------------------------------------------------------------------------


def step(command: str, text: str) -> Exchange:
    return Exchange((bash(command),), (Observation(text),))


def test_a_guard_counts_calls_and_skips_what_is_not_executed() -> None:
    assert guard_after([]) == Guard(0, START)
    malformed = Exchange((), (Observation("no such tool"),))
    both = Exchange((bash("a"), bash("b")), (Observation("1"), Observation("2")))
    assert guard_after([malformed, both]) == guard_after([step("a", "1"), step("b", "2")])
    assert guard_after([both]).after == 2


def test_every_part_of_a_history_is_in_its_digest() -> None:
    histories = [
        [],
        [step("a", "1")],
        [step("a", "2")],
        [step("b", "1")],
        [step("a", "1"), step("a", "1")],
        [step("a 1", "")],
        [step("a", "1"), step("b", "\ud800")],
        [step("b", "1"), step("a", "1")],
    ]
    assert len({guard_after(history).digest for history in histories}) == len(histories)


def test_only_what_the_policy_sees_of_an_observation_counts() -> None:
    seen = Observation("1", exit_code=3, raw=b"x", truncated=True)
    assert extend(START, bash("a"), seen) == extend(START, bash("a"), Observation("1"))


@pytest.mark.parametrize("marked", [{"timed_out": True}, {"state_lost": True}, {}])
def test_a_guard_does_not_hold_after_an_unsettled_command(marked: dict[str, bool]) -> None:
    history = History()
    history.begin()
    history.end(bash("a"), Observation("1", **marked), jobs=not marked)
    assert history.judge(guard_after([step("a", "1")])) is Judgement.REFUSE
    history.begin()
    history.end(bash("b"), Observation("2"), jobs=False)
    assert history.judge(guard_after([step("a", "1"), step("b", "2")])) is Judgement.RUN


def test_after_a_command_that_was_cut_off_no_guard_ever_holds() -> None:
    history = History()
    history.begin()
    history.begin()
    history.end(bash("b"), Observation("2"), jobs=False)
    for after in (0, 1, 2, 3):
        assert history.judge(Guard(after, guard_after([step("b", "2")]).digest)) is Judgement.REFUSE
