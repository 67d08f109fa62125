"""The asynchronous collector: every rollout ends once, nothing exceeds its cap, weights change underneath."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

import anyio
import pytest

from obsspec.policy.replicated import Replicated
from obsspec.policy.retry import Retrying
from obsspec.protocols import Policy, Sandbox
from obsspec.rollout.accounting import Account, Stage
from obsspec.rollout.async_collector import AsyncCollector, Collection
from obsspec.rollout.attempts import Attempt, Drop
from obsspec.rollout.collector import Collector, Job, RolloutResult, Shared, Speculation, Verdict
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import Limits, RolloutRules, turn_seed
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.session import SpeculationSettings
from obsspec.speculation.trace import SpeculationReport
from obsspec.testing import ScriptedPolicy, run_virtual, terminal_script
from obsspec.testing.delays import constant
from obsspec.testing.policy import Request
from obsspec.testing.scripts import toy_renderer
from obsspec.testing.virtual_clock import Backend
from obsspec.testing.world_model import Move, ScriptedWorldModel, always
from obsspec.train.transition_log import Follower, TransitionWriter
from obsspec.values import Completion, ConfigError, EngineError, Sampling, StopReason, Tokens
from obsspec.world.language import LanguageWorldModel
from tests.rollout.collecting import Gauge, Plan, Task, Trouble, audit, collect, honest, jobs_of, know, make

pytestmark = pytest.mark.anyio

ROUGH = Trouble(engine=0.05, setup=0.1, tool=0.05, verify=0.1)


def drawn(seed: int) -> Plan:
    """Any collection: sizes, latencies, failures, new weights, cancelled groups, slow and leaving readers."""
    random = Random(seed)
    pick = random.choice
    return Plan(
        seed,
        groups=pick((1, 3, 6)),
        size=pick((1, 2, 4)),
        in_flight=pick((1, 2, 4, 8)),
        sandboxes=pick((None, 1, 2, 5)),
        max_staleness=pick((None, 0, 1, 3)),
        strict_version=pick((False, False, True)),
        retries=pick((0, 0, 1, 2)),
        whole_groups=pick((True, False)),
        buffer=pick((1, 2, 8)),
        speculative=pick((False, True)),
        trouble=pick((Trouble(), Trouble(), ROUGH)),
        updates=tuple(random.uniform(0, 30) for _ in range(pick((0, 0, 2, 6)))),
        cancels=tuple((random.uniform(0, 20), f"group-{random.randrange(6)}") for _ in range(pick((0, 0, 1, 3)))),
        reads_slowly=pick((False, True)),
        leaves_after=pick((None, None, None, 2)),
        killed_at=pick((None, None, None, random.uniform(0, 20))),
    )


@pytest.mark.parametrize("block", range(4))
def test_e07_every_dispatched_rollout_ends_once_whatever_happens(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        backend = (Backend.TRIO, Backend.ASYNCIO)[seed % 2]
        made = run_virtual(collect, drawn(seed), backend=backend, seed=seed)
        assert audit(made) == [], f"{drawn(seed)} on {backend}"


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_the_rollouts_are_those_of_the_sequential_synchronous_collector(seed: int, speculative: bool) -> None:
    plan = Plan(seed, speculative=speculative, whole_groups=bool(seed % 2), reads_slowly=True)
    synchronous = make(plan)
    jobs = [job for group in jobs_of(synchronous) for job in group]
    expected = {result.seed: result for result in await Collector(synchronous.policy, 2).run(jobs)}
    made = await collect(plan)
    assert audit(made) == []
    assert made.results.keys() == expected.keys()
    for name, result in made.results.items():
        assert differences(expected[name], result) == []


# A scene of one's own ------------------------------------------------------------------------------------------------

ENDLESS = terminal_script([f"echo {n}" for n in range(1000)], final=0, malformed=0, cut=0, empty=0)
THREE_TURNS = Limits(3, 60, 4000)


def engine(first_s: float = 1.0, spoil: Callable[[Request, Completion], Completion] | None = None) -> ScriptedPolicy:
    return ScriptedPolicy(ENDLESS, first_s=constant(first_s), spoil=spoil)


def job(task: Task, name: str, group: str = "g", step: int = 0, limits: Limits = THREE_TURNS) -> Job:
    return Job(task, RolloutRules(toy_renderer(), limits, name), group, step)


def team(count: int, gauge: Gauge | None = None, **times: float) -> list[Job]:
    """Jobs of one group whose environments take these times."""
    delays = {name: constant(seconds) for name, seconds in times.items()}
    gauge = gauge or Gauge()
    return [job(Task(f"task-{number}", gauge, **delays), f"r{number}") for number in range(count)]


def speculating(depth: int = 2, delay_s: float = 0.5) -> Speculation:
    model = ScriptedWorldModel(know, always(Move.RIGHT), delay_s=constant(delay_s))
    return Speculation(Shared(model), SpeculationSettings(depth, 1))


async def everything(collection: Collection) -> list[Attempt]:
    return [attempt async for group in collection for attempt in group]


# Weights -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speculation", [None, speculating()], ids=["sequential", "speculative"])
async def test_e07_what_must_end_too_old_is_given_up_at_once_and_its_sibling_lives(
    speculation: Speculation | None,
) -> None:
    """The first of two is in its first tool, at 5 s, when the weights change; D = 2 is pending, if it speculates."""
    policy = engine()
    async with AsyncCollector(policy, 1, None, speculation, max_staleness=0).collect([team(2, tool_s=10.0)]) as found:
        await anyio.sleep(5.0)
        policy.weight_version = "1"
        found.look()
        first, second = await everything(found)
    assert (first.drop, first.result.trajectory.stop) == (Drop.STALE, StopReason.CANCELLED)
    assert first.result.trajectory.end_s == 5.0
    assert (second.drop, set(second.result.trajectory.versions)) == (None, {"1"})
    assert not policy.open


@pytest.mark.parametrize("strict", [False, True])
async def test_e07_a_turn_that_was_under_way_when_the_weights_changed_is_the_last_one(strict: bool) -> None:
    """Or the first one on the new weights. Turns begin at 0, 11 and 22 s."""
    policy = engine()
    collector = AsyncCollector(policy, 1, max_staleness=None if strict else 0, strict_version=strict)
    async with collector.collect([team(1, tool_s=10.0)]) as found:
        await anyio.sleep(5.0 if strict else 0.5)
        policy.weight_version = "1"
        found.look()
        (attempt,) = await everything(found)
    assert attempt.drop is (Drop.MIXED_VERSIONS if strict else Drop.STALE)
    assert policy.finished == len(attempt.trajectory.turns) == (2 if strict else 1)


async def test_e07_a_dropped_rollout_is_made_again_if_asked_to() -> None:
    policy = engine()
    collector = AsyncCollector(policy, 1, max_staleness=0, retries=1)
    async with collector.collect([team(1, tool_s=10.0)]) as found:
        await anyio.sleep(5.0)
        policy.weight_version = "1"
        found.look()
        (attempt,) = await everything(found)
    assert (attempt.number, attempt.drop, set(attempt.result.trajectory.versions)) == (2, None, {"1"})
    assert (found.account.dispatched, found.account.used, found.account.drops[Drop.STALE]) == (2, 1, 1)


@pytest.mark.parametrize("retries", [0, 1])
async def test_e07_what_was_fresh_when_it_ended_may_be_stale_when_it_is_read(retries: int) -> None:
    policy = engine()
    collector = AsyncCollector(policy, 1, max_staleness=0, retries=retries)
    async with collector.collect([team(1)]) as found:
        await anyio.sleep(60.0)
        assert policy.finished == 3
        policy.weight_version = "1"
        (attempt,) = await everything(found)
    assert attempt.drop is (None if retries else Drop.STALE)
    assert set(attempt.result.trajectory.versions) == ({"1"} if retries else {"0"})


async def test_e07_what_waits_for_its_siblings_and_is_too_old_is_made_again_beside_them() -> None:
    """The quick one is over at 3 s, the weights change at 10 s, and both are made again from then on."""
    gauge = Gauge()
    jobs = [job(Task("quick", gauge), "quick"), job(Task("slow", gauge, tool_s=constant(50.0)), "slow")]
    policy = engine()
    async with AsyncCollector(policy, 2, max_staleness=0, retries=1).collect([jobs]) as found:
        await anyio.sleep(10.0)
        policy.weight_version = "1"
        found.look()
        attempts = await everything(found)
    assert [(attempt.number, attempt.drop) for attempt in attempts] == [(2, None)] * 2
    assert anyio.current_time() == pytest.approx(10.0 + 3 * (1.0 + 50.0))


@pytest.mark.parametrize(("max_staleness", "drop"), [(0, Drop.STALE), (1, Drop.STALE), (2, None), (None, None)])
async def test_the_oldest_token_counts(max_staleness: int | None, drop: Drop | None) -> None:
    """Turns at 0, 11 and 22 s, on weights 0, 1 and 2."""
    policy = engine()
    async with AsyncCollector(policy, 1, max_staleness=max_staleness).collect([team(1, tool_s=10.0)]) as found:
        for version in ("1", "2"):
            await anyio.sleep(10.5)
            policy.weight_version = version
        (attempt,) = await everything(found)
    assert attempt.drop is drop
    if drop is None:
        assert attempt.result.trajectory.versions == ["0", "1", "2"]
        assert attempt.age == 2


@pytest.mark.parametrize("speculation", [None, speculating(1)], ids=["sequential", "speculative"])
async def test_e01_under_the_strict_option_a_rollout_that_spans_an_update_is_dropped_in_both_pipelines(
    speculation: Speculation | None,
) -> None:
    policy = engine()
    collector = AsyncCollector(policy, 2, None, speculation, strict_version=True)
    async with collector.collect([team(1, tool_s=10.0), team(1)]) as found:
        await anyio.sleep(5.0)
        policy.weight_version = "1"
        attempts = await everything(found)
    assert [attempt.drop for attempt in attempts] == [None, Drop.MIXED_VERSIONS], "the quick one was over before"


@pytest.mark.parametrize("speculation", [None, speculating(2)], ids=["sequential", "speculative"])
async def test_e01_e04_turns_that_span_updates_name_the_weights_that_sampled_them_in_the_log_too(
    speculation: Speculation | None, tmp_path: Path
) -> None:
    """An update every 0.7 s: during requests, between prediction and match, while branches wait."""
    policy = engine()
    with TransitionWriter(tmp_path, "a") as log:
        collector = AsyncCollector(policy, 3, None, speculation, log=log)
        async with collector.collect([team(4, tool_s=3.0)]) as found, anyio.create_task_group() as tasks:

            async def publish() -> None:
                for version in count(1):
                    await anyio.sleep(0.7)
                    policy.weight_version = str(version)

            tasks.start_soon(publish)
            attempts = await everything(found)
            tasks.cancel_scope.cancel()
    assert all(honest(attempt, ENDLESS) for attempt in attempts)
    logged = {(t.rollout, t.level): t.policy_versions for t in Follower(tmp_path).poll().transitions}
    for attempt in attempts:
        trajectory = attempt.result.trajectory
        assert len(set(trajectory.versions)) == 3, "each turn has weights of its own"
        for level in range(3):
            assert logged[attempt.job.rules.seed, level] == tuple(trajectory.versions[: level + 1])


@pytest.mark.parametrize("max_staleness", [0, 1])
async def test_e04_engines_that_get_new_weights_one_after_the_other_have_had_one_update(max_staleness: int) -> None:
    """The first has them at 5 s, the other at 15 s. Turns are sampled at 0, 11 and 22 s, by both of them at each."""
    engines = engine(), engine()
    policy = Replicated(engines)
    collector = AsyncCollector(Retrying(policy), 8, max_staleness=max_staleness)
    async with collector.collect([team(8, tool_s=10.0)]) as found:
        for first, second in ("10", "11"):
            await anyio.sleep(5.0 if second == "0" else 10.0)
            engines[0].weight_version, engines[1].weight_version = first, second
            found.look()
        attempts = await everything(found)
    assert {attempt.drop for attempt in attempts} == {Drop.STALE if max_staleness == 0 else None}
    if max_staleness:
        assert {tuple(attempt.trajectory.versions) for attempt in attempts} == {("0", "0", "1"), ("0", "1", "1")}
        assert {attempt.age for attempt in attempts} == {1}


@pytest.mark.parametrize("which", ["world", "policy"])
async def test_d12_new_weights_of_one_model_abort_nothing_of_the_other(which: str, tmp_path: Path) -> None:
    """All 16 rollouts are in mid-request when one of the two models is updated."""

    async def play(update: bool, log: Path) -> tuple[list[RolloutResult], ScriptedPolicy, ScriptedPolicy]:
        policy = ScriptedPolicy(ENDLESS, first_s=constant(1.0), token_s=constant(0.1))
        world = ScriptedPolicy(ENDLESS, first_s=constant(1.0), token_s=constant(0.1), weight_version="w0")
        models = Shared(LanguageWorldModel(world, toy_renderer()))
        with TransitionWriter(log, "a") as writer:
            collector = AsyncCollector(policy, 16, None, Speculation(models), log=writer)
            async with collector.collect([team(16, tool_s=10.0)]) as found:
                await anyio.sleep(1.2 if which == "world" else 2.5)
                assert len(policy.open if which == "world" else world.open) == 16
                if update:
                    changed = world if which == "world" else policy
                    changed.weight_version = "w1" if which == "world" else "1"
                attempts = await everything(found)
        return [attempt.result for attempt in attempts], policy, world

    calm, *calm_engines = await play(False, tmp_path / "calm")
    updated, *engines = await play(True, tmp_path / "updated")
    assert [r.trajectory.stop for r in updated] == [StopReason.TURN_LIMIT] * 16
    if which == "world":
        assert [differences(a, b) for a, b in zip(calm, updated, strict=True)] == [[]] * 16
    for before, after in zip(calm_engines, engines, strict=True):
        assert (after.started, after.cancelled, after.failed) == (before.started, before.cancelled, before.failed)
    transitions = Follower(tmp_path / "updated").poll().transitions
    assert {t.world_version for t in transitions if t.source} == ({"w1"} if which == "world" else {"w0"})


async def test_h03_the_engine_hears_which_of_its_requests_has_become_the_committed_turn() -> None:
    """Through every client between a session and the engine."""
    promoted: list[tuple[Tokens, Sampling]] = []

    class Engine(ScriptedPolicy):
        def promote(self, prompt: Tokens, sampling: Sampling) -> None:
            promoted.append((prompt, sampling))

    policy = Retrying(Replicated([Engine(ENDLESS, first_s=constant(5.0))]))
    async with AsyncCollector(policy, 1, None, speculating(1)).collect([team(1, tool_s=1.0)]) as found:
        (attempt,) = await everything(found)
    assert len(attempt.trajectory.turns) == 3
    assert [sampling for _, sampling in promoted] == [replace(promoted[0][1], seed=turn_seed("r0", n)) for n in (1, 2)]


# Caps and cancelled groups -------------------------------------------------------------------------------------------


async def test_d11_a_group_cancelled_while_it_is_filled_ends_exactly_and_never_exceeds_the_cap() -> None:
    policy, gauge = engine(), Gauge()
    first = team(6, gauge, setup_s=1.0, tool_s=10.0, close_s=2.0)
    second = [replace(each, group="other") for each in team(3, gauge, setup_s=1.0)]
    async with AsyncCollector(policy, 3, 3).collect([first, second]) as found:
        await anyio.sleep(2.5)
        assert (gauge.now, len(policy.open)) == (3, 0), "three in their first tools"
        found.cancel("g")
        cancelled, others = [group async for group in found]
    assert [attempt.drop for attempt in cancelled] == [Drop.CANCELLED] * 6
    assert [attempt.number for attempt in cancelled] == [1, 1, 1, 0, 0, 0]
    assert [attempt.drop for attempt in others] == [None] * 3
    assert (found.account.dispatched, found.account.used) == (6, 3)
    assert (gauge.most, gauge.now) == (3, 0)
    assert not policy.open


async def test_d11_leaving_while_groups_are_filled_leaves_nothing() -> None:
    policy, gauge, account = engine(), Gauge(), Account()
    with anyio.move_on_after(3.5):
        async with AsyncCollector(policy, 4, 2).collect([team(9, gauge, setup_s=1.0, close_s=1.0)], account) as found:
            await everything(found)
    assert (len(policy.open), gauge.now, gauge.most) == (0, 0, 2)
    assert account.dispatched == account.drops[Drop.CANCELLED] + account.used > 0


async def test_the_slot_is_free_while_the_verifier_runs() -> None:
    """One in flight; the verifier takes 50 s. The second rollout has its turns meanwhile, in a second sandbox."""
    policy = engine()
    async with AsyncCollector(policy, 1, 2).collect([team(2, verify_s=50.0)]) as found:
        await anyio.sleep(8.0)
        assert policy.finished == 6
        assert found.in_flight == 0
        attempts = await everything(found)
    assert [attempt.drop for attempt in attempts] == [None, None]
    assert anyio.current_time() == pytest.approx(56.0)


async def test_the_sandbox_is_set_up_while_the_first_turn_is_generated() -> None:
    """2 s of set-up beside 3 s of generation; one request for the first turn, as always."""
    policy = engine(3.0)
    async with AsyncCollector(policy, 1).collect([team(1, setup_s=2.0, tool_s=1.0)]) as found:
        (attempt,) = await everything(found)
    turns = attempt.result.trajectory.turns
    assert turns[0].tool_start_s[0] == pytest.approx(3.0)
    assert policy.started == len(turns) == 3
    assert anyio.current_time() == pytest.approx(3 * (3.0 + 1.0))


@pytest.mark.parametrize("setup_s", [0.5, 2.0])
async def test_a_head_start_says_nothing_about_the_speed_of_the_engine(setup_s: float) -> None:
    seen: list[tuple[float, bool]] = []

    class Listening:
        """An open gate that is told how long generations took."""

        def __init__(self) -> None:
            from obsspec.speculation.gate import OpenGate

            gate = OpenGate()
            self.predicts, self.starts = gate.predicts, gate.starts
            self._began: dict[int, float] = {}

        def saw(self, what: object) -> None:
            from obsspec.speculation.decisions import GenerationEnded, GenerationStarted

            if isinstance(what, GenerationStarted):
                self._began[what.ticket] = what.now_s
            if isinstance(what, GenerationEnded) and what.finished:
                seen.append((what.now_s - self._began.pop(what.ticket), what.tokens > 0))

    speculation = replace(speculating(), gate=Listening())
    async with AsyncCollector(engine(), 1, None, speculation).collect([team(2, setup_s=setup_s)]) as found:
        await everything(found)
    assert seen
    assert all(took_s == pytest.approx(1.0) and tokens for took_s, tokens in seen)


# The stream ----------------------------------------------------------------------------------------------------------


async def test_an_endless_source_waits_for_a_reader_that_does_not_read() -> None:
    asked: list[int] = []

    def groups() -> Iterator[list[Job]]:
        for number in count():
            asked.append(number)
            yield team(2)

    policy = engine()
    async with AsyncCollector(policy, 4, buffer=2).collect(groups()) as found:
        await anyio.sleep(1000.0)
        before, done = len(asked), policy.finished
        await anyio.sleep(1000.0)
        assert (len(asked), policy.finished) == (before, done), "nothing goes on"
        assert before <= 2 + 4
        for _ in range(10):
            assert len(await anext(found)) == 2
    assert not policy.open


async def test_singles_come_as_they_end_and_groups_when_they_are_whole() -> None:
    def jobs() -> list[Job]:
        gauge = Gauge()
        slow, quick = Task("slow", gauge, tool_s=constant(50.0)), Task("quick", gauge)
        return [job(slow, "slow"), job(quick, "quick")]

    async with AsyncCollector(engine(), 2, whole_groups=False).collect([jobs()]) as found:
        singles = [[attempt.job.rules.seed for attempt in group] async for group in found]
    async with AsyncCollector(engine(), 2).collect([jobs()]) as found:
        whole = [[attempt.job.rules.seed for attempt in group] async for group in found]
    assert (singles, whole) == ([["quick"], ["slow"]], [["slow", "quick"]])


async def test_a_cancelled_read_loses_nothing() -> None:
    seeds: list[str] = []
    async with AsyncCollector(engine(), 2, whole_groups=False).collect([team(6)]) as found:
        while len(seeds) < 6:
            with anyio.move_on_after(0.3):
                seeds += [attempt.job.rules.seed for attempt in await anext(found)]
    assert sorted(seeds) == [f"r{n}" for n in range(6)]


async def test_the_rollouts_of_a_step_are_asked_for_when_they_can_be_begun() -> None:
    """A source that looks at the trainer's step gives jobs of that step."""
    now = {"step": 0}

    def groups() -> Iterator[list[Job]]:
        for number in range(4):
            yield [replace(team(1)[0], step=now["step"], rules=replace(team(1)[0].rules, seed=f"r{number}"))]

    steps: list[int] = []
    async with AsyncCollector(engine(), 1, buffer=1).collect(groups()) as found:
        async for (attempt,) in found:
            steps.append(attempt.job.step)
            now["step"] += 1
            await anyio.sleep(10.0)
    assert steps[0] == 0
    assert all(late - early <= 2 for early, late in zip(steps, range(4), strict=True))
    assert steps == sorted(steps) != [0] * 4


# Failures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-math.inf, math.nan])
async def test_a10_logprobs_that_are_no_numbers_are_neither_used_nor_logged(bad: float, tmp_path: Path) -> None:
    """The second request of all returns one; what it was for is a committed turn."""

    def spoil(request: Request, completion: Completion) -> Completion:
        return replace(completion, logprobs=(bad, *completion.logprobs[1:])) if request.number == 2 else completion

    with TransitionWriter(tmp_path, "a") as log:
        async with AsyncCollector(engine(spoil=spoil), 1, log=log).collect([team(2)]) as found:
            first, second = await everything(found)
    assert (first.drop, first.result.trajectory.stop) == (Drop.ERROR, StopReason.ENGINE_ERROR)
    assert second.drop is None
    news = Follower(tmp_path).poll()
    assert [t.level for t in news.transitions if t.rollout == "r0"] == [0, 1], "the turns before it count"
    assert {e.rollout: e.stop for e in news.ended} == {"r0": StopReason.ENGINE_ERROR, "r1": StopReason.TURN_LIMIT}


@pytest.mark.parametrize("bad", [-math.inf, math.nan])
async def test_a10_on_a_speculative_turn_they_cost_a_branch_and_not_the_rollout(bad: float) -> None:
    def spoil(request: Request, completion: Completion) -> Completion:
        speculative = request.priority == "speculative"
        return replace(completion, logprobs=(bad, *completion.logprobs[1:])) if speculative else completion

    async def play(speculation: Speculation | None) -> RolloutResult:
        collector = AsyncCollector(engine(spoil=spoil), 1, None, speculation)
        async with collector.collect([team(1, tool_s=5.0)]) as found:
            (attempt,) = await everything(found)
        assert attempt.drop is None
        return attempt.result

    assert differences(await play(None), await play(speculating())) == []


async def test_the_log_has_the_turns_of_every_rollout_that_was_dropped(tmp_path: Path) -> None:
    plan = Plan(3, groups=5, max_staleness=0, updates=(2.0, 6.0, 11.0), trouble=ROUGH, retries=1)
    with TransitionWriter(tmp_path, "a") as log:
        made = await collect(plan, log)
    assert audit(made) == []
    logged = {(t.rollout, t.ids) for t in Follower(tmp_path).poll(10_000).transitions}
    dropped = [attempt for attempt in made.attempts if attempt.drop is not None and attempt.result.trajectory.turns]
    assert dropped
    for attempt in made.attempts:
        ids = tuple(attempt.result.trajectory.ids)
        committed = [i for name, i in logged if name == attempt.job.rules.seed and ids[: len(i)] == i]
        assert len(committed) >= len(attempt.result.trajectory.turns)


@pytest.mark.parametrize("speculative", [False, True])
def test_killed_at_any_byte_a_collection_made_again_leaves_no_gap_and_no_duplicate(
    speculative: bool, tmp_path: Path
) -> None:
    """Rollouts are under way at the same time, so that their turns lie between each other's."""
    plan = Plan(5, groups=3, in_flight=4, speculative=speculative)
    expected, content = logged(plan, tmp_path / "whole")
    assert len(expected) > 20
    for number, cut in enumerate(range(0, len(content), len(content) // 25)):
        log = tmp_path / str(number)
        log.mkdir()
        (log / "a.jsonl").write_bytes(content[:cut])
        assert logged(plan, log)[0] == expected


def logged(plan: Plan, log: Path) -> tuple[Counter[tuple[str, int, tuple[int, ...]]], bytes]:
    with TransitionWriter(log, "a") as writer:
        made = run_virtual(collect, plan, writer, backend=Backend.ASYNCIO)
    assert audit(made) == []
    transitions = Follower(log).poll(10_000).transitions
    return Counter((t.rollout, t.level, t.ids) for t in transitions), (log / "a.jsonl").read_bytes()


async def test_what_a_part_should_not_raise_ends_the_collection_with_that_error() -> None:
    class Broken(Task):
        async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
            raise ZeroDivisionError("a broken verifier")

    policy, gauge, account = engine(), Gauge(), Account()
    jobs = [*team(3, gauge, tool_s=20.0), job(Broken("broken", gauge), "broken")]
    with pytest.raises(ZeroDivisionError, match="a broken verifier"):
        async with AsyncCollector(policy, 4).collect([jobs], account) as found:
            await everything(found)
    assert (len(policy.open), gauge.now) == (0, 0)
    assert account.dispatched == account.drops[Drop.CANCELLED] == 4


async def test_an_error_of_the_reader_is_raised_as_it_is() -> None:
    policy = engine()

    async def read() -> None:
        async with AsyncCollector(policy, 4).collect([team(4)]):
            await anyio.sleep(0.5)
            raise KeyError("reader")

    with pytest.raises(KeyError, match="reader"):
        await read()
    assert not policy.open


async def test_a_log_that_can_not_be_written_ends_the_collection(tmp_path: Path) -> None:
    outsider = job(Task("outsider", Gauge()), "outsider")
    outsider.environment.split = None  # pyright: ignore[reportAttributeAccessIssue]
    with TransitionWriter(tmp_path, "a") as log, pytest.raises(ConfigError, match="not of the training split"):
        async with AsyncCollector(engine(), 2, log=log).collect([[*team(1), outsider]]) as found:
            await everything(found)


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("where", ["begin", "committed", "ended"])
async def test_a_log_that_fails_at_any_moment_leaves_nothing_and_the_books_in_balance(where: str, number: int) -> None:
    class Full:
        """A disk without room for the so manieth of these."""

        def __init__(self) -> None:
            self._left = number

        def _write(self, what: str) -> None:
            self._left -= what == where
            if self._left <= 0:
                raise ConfigError("no room")

        def begin(self, job: Job) -> Full:
            self._write("begin")
            return self

        def committed(self, trajectory: Trajectory, report: SpeculationReport | None) -> None:
            self._write("committed")

        def ended(self, result: RolloutResult) -> None:
            self._write("ended")

    policy, gauge, account = engine(), Gauge(), Account()
    groups = [team(3, gauge, tool_s=1.0), team(3, gauge)]
    with pytest.raises((ConfigError, ExceptionGroup)):
        async with AsyncCollector(policy, 2, log=Full()).collect(groups, account) as found:
            await everything(found)
    assert (len(policy.open), gauge.now) == (0, 0)
    assert account.dispatched == account.used + sum(account.lost.values()) > 0


async def test_a_group_without_jobs_is_refused() -> None:
    with pytest.raises(ConfigError, match="a group without jobs"):
        async with AsyncCollector(engine(), 2).collect([[]]) as found:
            await everything(found)


@pytest.mark.parametrize(
    "wrong", [{"in_flight": 0}, {"sandboxes": 0}, {"max_staleness": -1}, {"retries": -1}, {"buffer": 0}]
)
def test_what_can_not_be_is_refused(wrong: dict[str, int]) -> None:
    policy: Policy = engine()
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be at least"):
        AsyncCollector(policy, **{"in_flight": 1, **wrong})


async def test_weights_that_the_policy_never_had_are_named() -> None:
    def spoil(request: Request, completion: Completion) -> Completion:
        return replace(completion, weight_version="elsewhere")

    with pytest.raises(ConfigError, match="weights 'elsewhere'"):
        async with AsyncCollector(engine(spoil=spoil), 1).collect([team(1)]) as found:
            await everything(found)


@pytest.mark.parametrize(
    ("trouble", "drop"),
    [(Trouble(setup=1.0), Drop.ERROR), (Trouble(tool=1.0), Drop.ERROR), (Trouble(verify=1.0), Drop.UNSCORED)],
)
async def test_a_rollout_without_a_verdict_is_not_one_that_could_not_be_made(trouble: Trouble, drop: Drop) -> None:
    task = Task("task", Gauge(), trouble=trouble)
    async with AsyncCollector(engine(), 1).collect([[job(task, "r0")]]) as found:
        (attempt,) = await everything(found)
    assert attempt.drop is drop
    assert attempt.result.trajectory.stop is StopReason.SANDBOX_ERROR
    assert found.account.lost[Stage.SCORING if drop is Drop.UNSCORED else Stage.COMPLETION] == 1


async def test_an_engine_that_fails_on_the_head_start_fails_the_rollout_typed() -> None:
    policy = ScriptedPolicy(ENDLESS, first_s=constant(1.0), fault=lambda request: EngineError("down"))
    async with AsyncCollector(policy, 1).collect([team(1, setup_s=3.0)]) as found:
        (attempt,) = await everything(found)
    assert (attempt.drop, attempt.result.trajectory.error) == (Drop.ERROR, "down")
    assert policy.started == 1
