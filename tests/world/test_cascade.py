"""The cascade: who is asked, what is emitted and when, and what is learnt from all that was said."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obsspec.protocols import Emit
from obsspec.rollout.collector import Collector, Environment, Job, Speculation
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.speculation.decisions import Ask, Decision, Predicted, Seen, What, Why
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.testing import ScriptedPolicy, recite, run_virtual, toy_renderer
from obsspec.testing.conformance.world_model import check_world_model
from obsspec.testing.delays import constant
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.virtual_clock import Backend, backend_options
from obsspec.values import Context, EngineError, Observation, Outcome, Prediction, SandboxError, ToolCall
from obsspec.world.cascade import Cascade, CascadeSettings
from obsspec.world.cascade_models import CascadeModels, Source
from obsspec.world.stages import CascadeMemory, Price, Prospect, Stage
from tests.core.scene import Scene, answer, call, says


@pytest.fixture(params=[Backend.TRIO, Backend.ASYNCIO])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return str(request.param), backend_options(request.param)


@dataclass
class Says:
    """A source that says these (text, confidence) after a while."""

    name: str
    says: Sequence[tuple[str, float]] = ()
    after_s: float = 0.0
    error: Exception | None = None
    asked: int = 0
    cancelled: int = 0
    learned: list[tuple[Context, tuple[Observation, ...]]] = field(default_factory=list)

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        self.asked += 1
        try:
            if self.after_s:
                await anyio.sleep(self.after_s)
            for text, confidence in self.says:
                emit(Prediction(tuple(Observation(text) for _ in context.calls), self.name, confidence))
            if self.error is not None:
                raise self.error
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self.learned.append((context, observations))
        if isinstance(self.error, ZeroDivisionError):
            raise self.error


@dataclass
class Foretells(Says):
    """Also says beforehand how good its answer will be, and when it comes."""

    prospect: Prospect | None = None

    def foresee(self, context: Context) -> Prospect | None:
        return self.prospect


class Refuses(OpenGate):
    """Lets no expensive source be asked, and remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def asks(self, ask: Ask) -> Decision:
        return Decision(What.ASK, ask.level, ask.kind, ask.source, allowed=False, why=Why.NOT_WORTH, p=ask.p)

    def saw(self, seen: Seen) -> None:
        self.seen.append(seen)


def context(number: int = 0, command: str = "cat f") -> Context:
    return Context((number,), (1,), (ToolCall("bash", {"command": command}),))


def cascade(
    *models: Says,
    expensive: Sequence[Says] = (),
    gate: Gate | None = None,
    memory: CascadeMemory | None = None,
    **options: float,
) -> Cascade:
    stages = [Stage(model.name, model) for model in models]
    stages += [Stage(model.name, model, Price.EXPENSIVE) for model in expensive]
    return Cascade(stages, gate=gate, settings=CascadeSettings(**options), memory=memory)


async def ask(model: Cascade, breadth: int = 1, of: Context | None = None) -> list[tuple[str, str, float]]:
    """(text, when, confidence) of what is emitted."""
    emitted: list[tuple[str, str, float]] = []

    def emit(prediction: Prediction) -> None:
        emitted.append((prediction.observations[0].text, prediction.source, round(anyio.current_time() - start, 6)))

    start = anyio.current_time()
    await model.predict(of or context(), breadth, emit)
    return emitted


@pytest.mark.anyio
async def test_a_sure_candidate_is_emitted_at_once_and_ends_the_others() -> None:
    slow = Says("replica", [("b", 0.99)], after_s=5.0)
    lm = Says("lm", [("c", 0.9)])
    assert await ask(cascade(Says("rules", [("a", 0.95)]), slow, expensive=[lm])) == [("a", "rules", 0.0)]
    assert slow.cancelled == slow.asked, "cancelled, if it had begun"
    assert lm.asked == 0


A, B = ("a", "quick", 0.0), ("b", "slow", 0.01)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("p", "says", "breadth", "expected", "tentative"),
    [
        (0.98, [("b", 0.98)], 1, [A, B], True),
        (0.98, [("a", 0.98)], 1, [A], True),
        (0.98, [], 1, [A], True),  # it kept silent
        (0.98, [("b", 0.3)], 1, [A], True),  # it is not so sure after all
        (0.89, [("b", 0.98)], 1, [A], False),  # nothing better is foreseen
        (0.98, [("b", 0.98)], 2, [A, B], False),  # there is room for both
        (0.98, [("b", 0.98), ("c", 0.97)], 1, [A, B], True),  # once
        (None, [("b", 0.98)], 1, [A], False),
    ],
)
async def test_a_sure_candidate_is_emitted_at_once_and_replaced_by_a_better_one_that_is_foreseen(
    p: float | None,
    says: list[tuple[str, float]],
    breadth: int,
    expected: list[tuple[str, str, float]],
    tentative: bool,
) -> None:
    slow = Foretells("slow", says, after_s=0.01, prospect=None if p is None else Prospect(p, 0.01))
    model = cascade(Says("quick", [("a", 0.9)]), slow)
    assert await ask(model, breadth) == expected
    emitted: list[Prediction] = []
    await model.predict(context(1), breadth, emitted.append)
    assert [prediction.tentative for prediction in emitted] == [tentative] + [False] * (len(expected) - 1)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("says", "after_s", "expected"),
    [
        ([("c", 0.98)], 0.01, [A, ("c", "slow", 0.01)]),
        ([], 0.01, [A, ("b", "middle", 0.01)]),  # it kept silent
        ([("b", 0.98)], 0.01, [A, ("b", "slow", 0.01)]),
        ([("c", 0.98)], 5.0, [A, ("b", "middle", 0.04)]),  # it takes too long
    ],
)
async def test_what_is_better_than_a_tentative_candidate_waits_for_what_is_better_still(
    says: list[tuple[str, float]], after_s: float, expected: list[tuple[str, str, float]]
) -> None:
    slow = Foretells("slow", says, after_s=after_s, prospect=Prospect(0.98, 0.01))
    model = cascade(Says("quick", [("a", 0.9)]), Says("middle", [("b", 0.95)], after_s=0.001), slow)
    assert await ask(model) == expected


@pytest.mark.anyio
async def test_what_takes_too_long_to_replace_is_not_waited_for() -> None:
    slow = Foretells("slow", [("b", 0.98)], after_s=5.0, prospect=Prospect(0.98, 0.01))
    model = cascade(Says("quick", [("a", 0.9)]), slow, patience=4.0)
    start = anyio.current_time()
    assert await ask(model) == [A]
    assert anyio.current_time() - start == pytest.approx(0.04)


@dataclass
class Emits(Says):
    """One candidate a second, as it is: (text, tentative)."""

    moves: Sequence[tuple[str, bool]] = ()

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        for text, tentative in self.moves:
            await anyio.sleep(1.0)
            emit(Prediction((Observation(text),), self.name, 0.9, tentative=tentative))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("breadth", "moves", "seconds"),
    [
        (1, [("b", True), ("a", False)], 2.0),
        (1, [("a", True), ("a", False)], 1.0),  # the same again
        (2, [("a", False), ("b", True), ("c", False)], 1.0),
        (2, [("b", True), ("a", False), ("c", False)], 2.0),
    ],
)
async def test_a_prediction_took_until_the_first_candidate_came_that_was_not_replaced(
    breadth: int, moves: list[tuple[str, bool]], seconds: float
) -> None:
    scene = Scene(recite(call("ls"), answer()), says("a"), breadth=breadth)
    scene.world_model = Emits("source", moves=moves)
    _, played = await scene.both()
    assert played.outcomes[0] is Outcome.MATCH
    assert played.report.attempts[0].prediction_s == pytest.approx(seconds)


@pytest.mark.anyio
async def test_a_better_prediction_replaces_the_branch_of_a_tentative_one_and_nothing_was_done_for_that() -> None:
    """The first branch ends long before the answer of the replica: its call is not sent ahead until that is there."""
    for truth, sent in (("b", 1), ("a", 0)):
        scene = Scene(recite(call("ls"), call("pwd"), answer()), says(truth), generation_s=0.01, guarded=True)
        quick, slow = Says("quick", [("a", 0.9)]), Foretells("slow", [("b", 0.98)], 0.1, prospect=Prospect(0.98, 0.1))
        scene.world_model = cascade(quick, slow)
        scene.tool_s, scene.depth = 1.0, 2
        _, played = await scene.both()
        assert played.outcomes[0] is (Outcome.MATCH if truth == "b" else Outcome.ROLLBACK)
        assert played.report.guarded_ran == sent


@pytest.mark.anyio
async def test_it_is_learnt_that_what_is_foreseen_does_not_come_true() -> None:
    slow = Foretells("slow", [("wrong", 0.98)], after_s=0.01, prospect=Prospect(0.98, 0.01))
    model = cascade(Says("quick", [("a", 0.9)]), slow)
    for number in range(4):
        await ask(model, of=context(number))
        model.learn(context(number), (Observation("a"),))
    assert await ask(model, of=context(9)) == [("a", "quick", 0.0)]


@pytest.mark.anyio
async def test_an_unsure_candidate_waits_a_little_for_a_better_one() -> None:
    unsure = Says("memory", [("a", 0.5)])
    assert await ask(cascade(unsure, Says("replica", [("b", 0.99)], after_s=0.05))) == [("b", "replica", 0.05)]
    slow = Says("replica", [("b", 0.99)], after_s=5.0)
    assert await ask(cascade(unsure, slow, wait_s=0.1)) == [("a", "memory", 0.1)]


@pytest.mark.anyio
async def test_the_most_likely_come_first_and_equal_texts_once() -> None:
    stages = Says("a", [("x", 0.3)]), Says("b", [("y", 0.6)]), Says("c", [("x", 0.7), ("z", 0.2), ("w", 0.01)])
    emitted: list[Prediction] = []
    await cascade(*stages).predict(context(), 4, emitted.append)
    assert [(p.observations[0].text, p.source, p.confidence) for p in emitted] == [
        ("x", "c", pytest.approx(0.7)),
        ("y", "b", pytest.approx(0.6)),
        ("z", "c", pytest.approx(0.2)),
    ]


@pytest.mark.anyio
async def test_an_expensive_stage_is_asked_when_nothing_is_sure_and_it_is_worth_it() -> None:
    lm = Says("lm", [("b", 0.6)], after_s=0.2)
    assert await ask(cascade(Says("rules"), expensive=[lm])) == [("b", "lm", 0.2)]
    gate = Refuses()
    refused = cascade(Says("rules", [("a", 0.4)]), expensive=[lm], gate=gate)
    assert await ask(refused) == [("a", "rules", 0.0)]
    assert lm.asked == 1
    (decision,) = refused.take_decisions()
    assert (decision.what, decision.source, decision.allowed) == (What.ASK, "lm", False)
    assert refused.take_decisions() == []
    assert refused.statistics()["lm"].refused == 1


@pytest.mark.anyio
async def test_with_breadth_both_are_emitted_and_without_the_better_one() -> None:
    rules, lm = Says("rules", [("a", 0.4)]), Says("lm", [("b", 0.6)], after_s=0.2)
    assert await ask(cascade(rules, expensive=[lm]), breadth=2) == [("a", "rules", 0.0), ("b", "lm", 0.2)]
    assert await ask(cascade(rules, expensive=[lm]), breadth=1) == [("b", "lm", 0.2)]
    worse = Says("lm", [("b", 0.3)], after_s=0.2)
    assert await ask(cascade(rules, expensive=[worse]), breadth=1) == [("a", "rules", 0.2)]


@pytest.mark.anyio
@pytest.mark.parametrize("error", [EngineError("down"), ZeroDivisionError("bug")])
async def test_h06_a_stage_that_fails_is_silent_and_after_a_while_left_alone(error: Exception) -> None:
    broken, good = Says("lm", error=error), Says("memory", [("a", 0.5)])
    model = cascade(good, expensive=[broken], sure=2.0)
    for number in range(20):
        turn = context(number)
        assert await ask(model, of=turn) == [("a", "memory", 0.0)]
        model.learn(turn, (Observation("a"),))
    assert broken.asked == 5
    assert model.statistics()["lm"].errors == 5
    assert len(broken.learned) == len(good.learned) == 20, "told of every committed turn all the same"
    assert model.statistics()["lm"].learning_errors == (20 if isinstance(error, ZeroDivisionError) else 0)


@pytest.mark.anyio
async def test_what_a_stage_keeps_getting_wrong_is_no_longer_emitted_and_comes_back() -> None:
    truth, source = Observation("truth"), Says("memory", [("guess", 0.9)])
    model = cascade(source)
    emitted: list[int] = []
    for number in range(60):
        turn = context(number)
        emitted.append(len(await ask(model, of=turn)))
        source.says = [("guess" if number < 30 else "truth", 0.9)]
        model.learn(turn, (truth,))
    assert sum(emitted[:30]) <= 6
    assert sum(emitted[45:]) == 15, "what was not emitted was compared as well"
    counts = model.statistics()["memory"]
    assert counts.compared == counts.said == 60
    assert counts.right == 29


@pytest.mark.anyio
async def test_confidences_are_calibrated_by_stage_and_class() -> None:
    boaster, modest = Says("boaster", [("wrong", 0.99)]), Says("modest", [("right", 0.4)])
    model = cascade(boaster, modest)
    for number in range(30):
        turn = context(number)
        await ask(model, of=turn)
        model.learn(turn, (Observation("right"),))
    assert await ask(model) == [("right", "modest", 0.0)]
    assert (await ask(model, of=context(99, "make")))[0][1] == "modest", "a new class inherits"


@pytest.mark.anyio
async def test_how_long_an_expensive_stage_takes_is_told_also_when_the_tool_was_faster() -> None:
    class Tells(Refuses):
        asks = OpenGate.asks

    gate = Tells()
    model = cascade(expensive=[Says("lm", [("b", 0.6)], after_s=0.5)], gate=gate)
    await ask(model)
    with anyio.move_on_after(0.2):
        await ask(model)
    told = [seen for seen in gate.seen if isinstance(seen, Predicted)]
    assert told == [Predicted("lm", pytest.approx(0.5)), Predicted("lm", pytest.approx(0.2), late=True)]  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_how_often_asking_helps_is_learnt_silence_included() -> None:
    asked: list[float] = []

    class Watches(OpenGate):
        def asks(self, ask: Ask) -> Decision:
            asked.append(ask.p)
            return super().asks(ask)

    lm = Says("lm")
    model = cascade(expensive=[lm], gate=Watches())
    for number in range(40):
        lm.says = [("a", 0.9)] if number >= 20 else []
        turn = context(number)
        await ask(model, of=turn)
        model.learn(turn, (Observation("a"),))
    assert asked[0] == pytest.approx(0.5)
    assert asked[19] < 0.1
    assert asked[39] > 0.4


@pytest.mark.anyio
async def test_cancelling_cancels_all_stages_and_nothing_is_emitted_afterwards() -> None:
    stages = [Says(f"s{i}", [(f"{i}", 0.5)], after_s=1.0 + i) for i in range(3)]
    lm = Says("lm", [("lm", 0.5)], after_s=9.0)
    emitted: list[Prediction] = []
    with anyio.move_on_after(0.5):
        await cascade(*stages, expensive=[lm], wait_s=0.2).predict(context(), 3, emitted.append)
    assert not emitted
    assert [stage.cancelled for stage in (*stages, lm)] == [1, 1, 1, 1]
    await anyio.sleep(20)
    assert not emitted


@pytest.mark.anyio
async def test_it_keeps_the_promises_of_a_world_model() -> None:
    @asynccontextmanager
    async def factory() -> AsyncGenerator[Cascade, None]:
        yield cascade(
            Says("rules", [("a", 0.95)]),
            Says("memory", [("b", 0.5)], after_s=0.01),
            expensive=[Says("lm", [("c", 0.6)])],
        )

    two = Context((1,), (2,), (ToolCall("bash", {"command": "ls"}), ToolCall("bash", {"command": "pwd"})))
    await check_world_model(factory, contexts=[context(), two])


WORDS = st.sampled_from(["a", "b", "c", "d"])
SPEECH = st.lists(st.tuples(WORDS, st.floats(0.0, 1.0)), max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(SPEECH, st.sampled_from([0.0, 0.05, 0.3]), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_whatever_is_said_nothing_is_emitted_twice_and_never_too_much(
    stages: list[tuple[list[tuple[str, float]], float, bool]], breadth: int
) -> None:
    async def play() -> None:
        models = [Says(f"s{i}", speech, after) for i, (speech, after, _) in enumerate(stages)]
        prices = [Price.CHEAP if cheap else Price.EXPENSIVE for _, _, cheap in stages]
        model = Cascade([Stage(m.name, m, price) for m, price in zip(models, prices, strict=True)])
        emitted: list[Prediction] = []
        await model.predict(context(), breadth, emitted.append)
        texts = [p.observations[0].text for p in emitted]
        assert len(set(texts)) == len(texts) <= breadth
        said = dict.fromkeys(texts, 0.0)
        for text, confidence in (pair for speech, _, _ in stages for pair in speech):
            if text in said:
                said[text] = max(said[text], confidence)
        assert all(p.confidence <= said[p.observations[0].text] + 0.011 for p in emitted)
        likely = {text for speech, _, _ in stages for text, c in speech if c >= 0.15}
        sure = any(confidence >= 0.9 for speech, _, _ in stages for _, confidence in speech)
        assert len(texts) == min(breadth, len(likely)) or sure
        assert set(texts) <= likely

    run_virtual(play, backend=Backend.ASYNCIO)


# In the pipeline -----------------------------------------------------------------------------------------------------


@dataclass
class Opened:
    """A source that is opened for each rollout, and cannot always be."""

    broken: bool = False
    open_now: int = 0
    opened: int = 0

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[Says, None]:
        if self.broken:
            raise SandboxError("no room")
        self.open_now += 1
        self.opened += 1
        try:
            yield Says("replica", [("a", 0.95)])
        finally:
            self.open_now -= 1


@pytest.mark.anyio
@pytest.mark.parametrize("broken", [False, True])
async def test_each_rollout_gets_its_cascade_and_all_learn_together(broken: bool) -> None:
    replica, shared = Opened(broken), Says("memory", [("b", 0.3)])
    models = CascadeModels([Source("replica", replica), Source("memory", shared)], ExpectedValueGate())
    policy = ScriptedPolicy(recite(*[call("ls")] * 3, answer()), first_s=constant(1.0))
    environments = [ScriptedEnvironment(str(i), says("a"), delay_s=lambda _: 2.0) for i in range(4)]
    jobs = [Job(e, RolloutRules(toy_renderer(), Limits(8, 200, 4000), e.task_id)) for e in environments]
    results = await Collector(policy, 2, Speculation(models, gate=models.gate)).run(jobs)
    outcomes = [a.outcome for r in results if r.speculation for a in r.speculation.attempts]
    assert replica.open_now == 0
    assert replica.opened == (0 if broken else 4)
    assert len(shared.learned) == 12
    if broken:
        assert models.statistics()["replica"].errors == 4
        assert Outcome.MATCH not in outcomes
    else:
        assert outcomes == [Outcome.MATCH] * 12
        assert models.statistics()["replica"].right == 12


@pytest.mark.anyio
async def test_the_decisions_of_the_cascade_are_in_the_trace_of_the_rollout() -> None:
    scene = Scene(recite(*[call("ls")] * 5, answer()), says("a"), gate=ExpectedValueGate())
    scene.world_model = cascade(Says("rules"), expensive=[Says("lm", [("a", 0.8)], after_s=0.1)], gate=scene.gate)
    _, played = await scene.both()
    whats = [decision.what for decision in played.report.decisions]
    assert whats.count(What.ASK) == whats.count(What.PREDICT) == 5
    starts = [decision for decision in played.report.decisions if decision.what is What.START]
    assert len(starts) == played.outcomes.count(Outcome.MATCH) >= 4
    assert all(decision.source == "lm" for decision in starts)


@pytest.mark.anyio
async def test_h06_a_language_model_that_hangs_costs_nothing_and_is_soon_not_asked() -> None:
    lm = Says("lm", [("a", 0.8)], after_s=1e6)
    scene = Scene(
        recite(*[call("ls")] * 40, answer()), says("a"), limits=Limits(50, 200, 8000), gate=ExpectedValueGate()
    )
    scene.world_model = cascade(Says("rules"), expensive=[lm], gate=scene.gate)
    a, b = await scene.both()
    assert b.trajectory.agent_s == pytest.approx(a.trajectory.agent_s)
    assert lm.cancelled == lm.asked < 12
