"""The transition log: exact masks, whole records wherever a writer was killed, explicit rules for training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obsspec.protocols import Renderer
from obsspec.render.hermes import HermesRenderer
from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.collector import Job, RolloutResult, Verdict
from obsspec.rollout.loop import run_loop
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.tasks.task import Split
from obsspec.testing import HermesScript, ScriptedPolicy, oracle, run_virtual, seeded_answers, terminal_script
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.hermes_script import toy_hermes_renderer
from obsspec.testing.scripts import toy_renderer
from obsspec.testing.vocabulary import ToyVocabulary
from obsspec.testing.world_model import ScriptedWorldModel, mixture
from obsspec.train.encode import Role
from obsspec.train.transition_log import Follower, News, TransitionWriter
from obsspec.train.transitions import FilterRules, Reason, Transition, examples, observation_ranges, trainable
from obsspec.values import ConfigError, Observation, Outcome, StopReason, ToolCall

LIMITS = Limits(max_turns=5, max_turn_tokens=200, max_context=1500)


def environment(name: str, split: Split | None = Split.TRAIN) -> ScriptedEnvironment:
    made = ScriptedEnvironment(name, seeded_answers(name))
    if split is not None:
        made.split = split  # pyright: ignore[reportAttributeAccessIssue]
    return made


def jobs(count: int, renderer: Renderer | None = None, step: int = 0, limits: Limits = LIMITS) -> list[Job]:
    rules = [RolloutRules(renderer or toy_renderer(), limits, f"{step}/{i}") for i in range(count)]
    return [Job(environment(f"task-{step}-{i}"), rule, "g", step) for i, rule in enumerate(rules)]


async def collect(writer: TransitionWriter, work: list[Job], version: str = "v1") -> list[RolloutResult]:
    """One after the other, each turn in the log as soon as it is over."""
    results: list[RolloutResult] = []
    for job in work:
        hermes = isinstance(job.rules.renderer, HermesRenderer)
        script = HermesScript() if hermes else terminal_script(final=0.1)
        policy = ScriptedPolicy(script, weight_version=version)
        rollout = writer.begin(job)
        async with job.environment.open() as sandbox:
            trajectory = await run_loop(
                job.environment.instruction, job.rules, policy, sandbox, lambda t, r=rollout: r.committed(t, None)
            )
            verdict = await job.environment.verify(sandbox, trajectory)
        results.append(RolloutResult(job.environment.task_id, job.rules.seed, job.group, trajectory, verdict))
        rollout.ended(results[-1])
    return results


def write(log: Path, name: str, work: list[Job], version: str = "v1") -> list[RolloutResult]:
    with TransitionWriter(log, name) as writer:
        return run_virtual(collect, writer, work, version)


def everything(log: Path) -> News:
    follower, news = Follower(log), News()
    while (more := follower.poll(7)).transitions or more.ended:
        news.transitions += more.transitions
        news.ended += more.ended
    return news


def places(transitions: list[Transition]) -> Counter[tuple[str, int, tuple[int, ...]]]:
    return Counter((t.rollout, t.level, t.ids) for t in transitions)


# What a transition says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renderer", [toy_renderer(), toy_hermes_renderer()], ids=["terminal", "hermes"])
def test_every_committed_turn_is_in_the_log_as_it_was(tmp_path: Path, renderer: Renderer) -> None:
    results = write(tmp_path, "a", jobs(12, renderer))
    news = everything(tmp_path)
    by_rollout = {result.seed: result for result in results}
    assert len(news.transitions) == sum(len(result.trajectory.turns) for result in results) > 20
    for t in news.transitions:
        trajectory = by_rollout[t.rollout].trajectory
        turn = trajectory.turns[t.level]
        assert t.ids == tuple(trajectory.ids[: len(t.ids)])
        assert t.ids[slice(*t.action)] == turn.completion.token_ids
        assert (t.calls, t.observations) == (turn.calls, turn.observations)
        assert t.policy_versions == ("v1",) * (t.level + 1)
    ends = {e.rollout: (e.stop, e.reward) for e in news.ended}
    assert ends == {r.seed: (r.trajectory.stop, r.verdict.reward) for r in results}


@pytest.mark.parametrize("renderer", [toy_renderer(), toy_hermes_renderer()], ids=["terminal", "hermes"])
def test_targets_are_what_a_world_model_would_write_to_the_token(tmp_path: Path, renderer: Renderer) -> None:
    write(tmp_path, "a", jobs(12, renderer))
    seen = 0
    for t in everything(tmp_path).transitions:
        prompt, action = t.ids[: t.action[0]], t.ids[slice(*t.action)]
        for number, (start, stop) in enumerate(t.targets):
            assert t.ids[:start] == renderer.open_observation(prompt, action, t.observations[:number])
            assert t.ids[stop - 1] in renderer.observation_stop_ids
            assert renderer.read_observation(t.ids[start:stop]) == t.observations[number].text
            seen += 1
    assert seen > 20


def spelled_renderer() -> HermesRenderer:
    """A vocabulary that does not own the tags: they are ordinary text."""
    return HermesRenderer(ToyVocabulary(controls=("<|im_start|>", "<|im_end|>")))


def test_targets_where_only_the_last_frame_is_followed_by_a_stop_token() -> None:
    renderer = spelled_renderer()
    prompt, action = renderer.start("go"), (*ToyVocabulary().encode("x"), renderer.stop_token_ids[0])
    observations = (Observation("one"), Observation("</tool_response>"), Observation(""))
    seen = renderer.extend(prompt, action, observations)
    ranges = observation_ranges(renderer, prompt, action, observations, seen)
    written = [seen[a:b] for a, b in ranges]
    assert bytes(written[0]) == b"one\n</tool_response>"
    assert bytes(written[1]) == b"</tool_response>\n</tool_response>"
    assert bytes(written[2][:-1]) == b"\n</tool_response>"
    assert written[2][-1] in renderer.observation_stop_ids


def test_a_turn_whose_observation_did_not_fit_has_no_target(tmp_path: Path) -> None:
    results = write(tmp_path, "a", jobs(12, limits=replace(LIMITS, max_context=60)))
    full = {r.seed for r in results if r.trajectory.stop is StopReason.CONTEXT_LIMIT}
    assert full
    last = {t.rollout: t for t in everything(tmp_path).transitions}
    unseen = {name for name, t in last.items() if trainable(t, FilterRules()) is Reason.UNSEEN}
    assert unseen
    assert all(last[name].action[1] == len(last[name].ids) for name in unseen), "the action is the last there is"


@pytest.mark.parametrize("depth", [1, 3])
def test_the_outcome_and_the_weights_of_the_prediction_are_kept(tmp_path: Path, depth: int) -> None:
    async def speculate(writer: TransitionWriter) -> list[tuple[int, Outcome, str]]:
        (job,) = jobs(1, limits=replace(LIMITS, max_turns=12, max_context=4000))
        model = ScriptedWorldModel(oracle(seeded_answers("task-0-0")), mixture(3, right=0.5, trouble=0.2))
        rollout = writer.begin(job)
        policy = ScriptedPolicy(terminal_script(final=0.0, malformed=0.2, cut=0, empty=0))
        settings = SpeculationSettings(depth, 1, 5.0)
        async with (
            job.environment.open() as sandbox,
            open_session(policy, Versioned(model), job.rules, settings=settings) as session,
        ):
            await run_loop(
                "say hello",
                job.rules,
                session.policy,
                session.sandbox(sandbox),
                lambda t: rollout.committed(t, session.report),
            )
        return [(a.level, a.outcome, a.source) for a in session.report.attempts]

    with TransitionWriter(tmp_path, "a") as writer:
        attempts = run_virtual(speculate, writer)
    transitions = everything(tmp_path).transitions
    assert [(t.level, t.outcome, t.source) for t in transitions if t.outcome is not None] == attempts
    assert [t.level for t in transitions if t.outcome is None] == [t.level for t in transitions if not t.calls]
    assert {t.world_version for t in transitions if t.source} == {"world-7"}
    assert len({outcome for _, outcome, _ in attempts}) > 1


class Versioned:
    """Its candidates carry the weights that made them."""

    def __init__(self, inner: ScriptedWorldModel) -> None:
        self.learn = inner.learn
        self._inner = inner

    async def predict(self, context: Any, breadth: int, emit: Any) -> None:
        await self._inner.predict(context, breadth, lambda p: emit(replace(p, version="world-7")))


# Whole records, wherever it was killed ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Counter[Any]]:
    log = tmp_path_factory.mktemp("whole")
    write(log, "a", jobs(4))
    return (log / "a.jsonl").read_bytes(), places(everything(log).transitions)


@settings(max_examples=60, deadline=None)  # files, on a machine that may be busy
@given(st.data())
def test_killed_at_any_byte_a_reader_sees_whole_records_and_a_resumed_run_leaves_no_gap_and_no_duplicate(
    whole: tuple[bytes, Counter[Any]], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content, expected = whole
    log = tmp_path_factory.mktemp("cut")
    cut = data.draw(st.integers(0, len(content)))
    (log / "a.jsonl").write_bytes(content[:cut])
    follower = Follower(log)
    before = follower.poll()
    assert sum(follower.position.values()) == content[:cut].rfind(b"\n") + 1
    again = data.draw(st.integers(1, 4), "jobs made again before the second kill")
    write(log, "a", jobs(4)[:again])
    write(log, "a", jobs(4))
    assert places(everything(log).transitions) == expected
    rest = Follower(log, follower.position).poll().transitions
    assert places(before.transitions + rest) == expected, "a follower goes on across both kills"
    assert (log / "a.jsonl").read_bytes() == content


def test_a_rollout_made_again_with_other_weights_branches_off_where_it_differs(tmp_path: Path) -> None:
    first = write(tmp_path, "a", jobs(6))
    second = write(tmp_path, "a", jobs(6), version="v2")
    news = everything(tmp_path)
    made = Counter((r.seed, tuple(r.trajectory.ids[: len(t.ids)])) for t in news.transitions for r in first + second)
    for t in news.transitions:
        assert made[t.rollout, t.ids] >= 1, "every turn is one of a real rollout"
    assert max(places(news.transitions).values()) == 1
    turns = {(r.seed, n) for r in first + second for n, _ in enumerate(r.trajectory.turns)}
    assert {(t.rollout, t.level) for t in news.transitions} == turns


def test_a_rollout_that_was_dropped_and_made_again_the_same_ends_again(tmp_path: Path) -> None:
    """As one that was too old when it was over: the last end is what became of it."""
    (job,) = jobs(1)
    for error in ("dropped: stale", "", ""):
        trajectory = Trajectory("go", [1, 2], [0, 0], [0.0, 0.0], stop=StopReason.TURN_LIMIT, error=error)
        with TransitionWriter(tmp_path, "a") as writer:
            writer.begin(job).ended(RolloutResult("t", job.rules.seed, "g", trajectory, Verdict(1.0)))
    assert [end.error for end in everything(tmp_path).ended] == ["dropped: stale", ""]


def test_a_writer_that_is_killed_while_it_writes_leaves_whole_records(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.train.test_transitions import jobs, write\n"
        "print('up', flush=True)\n"
        "for step in range(10000): write(Path(sys.argv[1]), 'a', jobs(3, step=step))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    follower = Follower(tmp_path)
    seen: list[Transition] = []
    while len(seen) < 30:
        seen += follower.poll().transitions
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    seen += follower.poll(100000).transitions
    assert max(places(seen).values()) == 1
    steps = max(t.step for t in seen)
    for step in range(steps + 1):
        write(tmp_path, "a", jobs(3, step=step))
    seen += follower.poll(100000).transitions
    whole = tmp_path / "whole"
    for step in range(steps + 1):
        write(whole, "a", jobs(3, step=step))
    assert places(seen) == places(everything(whole).transitions)


def test_damage_is_named_and_not_read_over(tmp_path: Path) -> None:
    write(tmp_path, "a", jobs(3))
    file = tmp_path / "a.jsonl"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.jsonl is damaged at byte \d+"):
        everything(tmp_path)


# Several writers, and followers that come and go --------------------------------------------------------------------


def test_several_writers_are_read_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (1, 0):
        write(tmp_path, "b", jobs(2, step=step))
        write(tmp_path, "a", jobs(2, step=step + 2))
    news = Follower(tmp_path).poll()
    orders = [t.order for t in news.transitions]
    assert orders == sorted(orders)
    assert {(step, writer) for step, writer, _ in orders} == {(0, "b"), (1, "b"), (2, "a"), (3, "a")}


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_what_has_piled_up_comes_in_the_order_of_steps_however_little_is_asked_for(limit: int, tmp_path: Path) -> None:
    """Writers far ahead of each other, also when another follower goes on in the middle."""
    for writer, step in (("a", 0), ("b", 5), ("c", 0), ("c", 1), ("a", 5), ("d", 2)):
        write(tmp_path, writer, jobs(3 if writer == "a" else 1, step=step))
    follower, steps = Follower(tmp_path), list[int]()
    while (news := follower.poll(limit)) != News():
        assert len(news.transitions) + len(news.ended) <= limit
        steps += [turn.step for turn in news.transitions]
        follower = Follower(tmp_path, follower.position)
    assert steps == sorted(steps)
    assert set(steps) == {0, 1, 2, 5}


@settings(max_examples=40, deadline=None)
@given(polls=st.lists(st.integers(1, 9), max_size=12))
def test_a_follower_sees_each_turn_once_however_often_it_is_restarted(
    polls: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = tmp_path_factory.mktemp("log")
    follower, seen = Follower(log), list[Transition]()
    writers = [TransitionWriter(log, name) for name in ("a", "b")]
    for step, limit in enumerate(polls):
        run_virtual(collect, writers[step % 2], jobs(2, step=step))
        seen += follower.poll(limit).transitions
        follower = Follower(log, follower.position)
    for writer in writers:
        writer.__exit__()
    while more := follower.poll(5):
        if not more.transitions and not more.ended:
            break
        seen += more.transitions
    assert places(seen) == places(everything(log).transitions)
    assert len(seen) == sum(places(seen).values())


def test_a_poll_for_one_turn_comes_back_with_one_until_there_is_none(tmp_path: Path) -> None:
    results = write(tmp_path, "a", jobs(5))
    follower = Follower(tmp_path)
    polls = 0
    while (news := follower.poll(1)) != News():
        assert len(news.transitions) + len(news.ended) == 1
        polls += 1
    assert polls == sum(len(result.trajectory.turns) for result in results) + len(results)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with TransitionWriter(tmp_path, "a"), pytest.raises(ConfigError, match="a name of its own"):
        TransitionWriter(tmp_path, "a")
    TransitionWriter(tmp_path, "a").__exit__()


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden"])
def test_a_name_is_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="can not be called"):
        TransitionWriter(tmp_path, name)


def test_a_position_of_another_log_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a", jobs(1))
    with pytest.raises(ConfigError, match="ends before byte"):
        Follower(tmp_path, {"a": 1 << 30}).poll()
    with pytest.raises(ConfigError, match="no record at byte 7: it is not the file"):
        Follower(tmp_path, {"a": 7}).poll()


def test_a_folder_of_other_files_is_no_damaged_log(tmp_path: Path) -> None:
    """A run folder instead of its transitions: nobody is told to cut its rollouts off."""
    (tmp_path / "rollouts.jsonl").write_text('{"arm": "step-0"}\n')
    with pytest.raises(ConfigError, match=r"no part of a transition log: give the folder of one, as RUN/transitions"):
        Follower(tmp_path).poll()


# What enters training -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [Split.TEST, Split.VALIDATION, None])
def test_h08_nothing_but_training_tasks_enters_the_log(tmp_path: Path, split: Split | None) -> None:
    job = replace(jobs(1)[0], environment=environment("t", split))
    with TransitionWriter(tmp_path, "a") as writer, pytest.raises(ConfigError, match="not of the training split"):
        writer.begin(job)
    assert everything(tmp_path) == News()


def transition(**changes: Any) -> Transition:
    (job,) = jobs(1)
    renderer = job.rules.renderer
    assert isinstance(renderer, TerminalRenderer)
    observation = changes.pop("observation", Observation("hello", exit_code=0))
    prompt, action = renderer.start("go"), renderer.call("ls")
    ids = renderer.extend(prompt, action, (observation,))
    base = Transition(
        rollout="r",
        level=0,
        step=0,
        writer="a",
        offset=0,
        split=Split.TRAIN,
        task_id="t",
        image="t",
        group="g",
        ids=ids,
        action=(len(prompt), len(prompt) + len(action)),
        targets=observation_ranges(renderer, prompt, action, (observation,), ids),
        calls=(ToolCall("bash", {"command": "ls"}),),
        observations=(observation,),
        policy_versions=("1",),
    )
    return replace(base, **changes)


CASES = [
    (Reason.SPLIT, {"split": Split.TEST}, {}, None),
    (Reason.NO_CALL, {"calls": ()}, {}, None),
    (Reason.UNSEEN, {"targets": ()}, {}, None),
    (Reason.TOO_LONG, {}, {"max_tokens": 10}, {"max_tokens": 1000}),
    (Reason.TRUNCATED, {"observation": Observation("x", truncated=True)}, {}, {"truncated": True}),
    (Reason.TIMED_OUT, {"observation": Observation("x", timed_out=True)}, {}, {"timed_out": True}),
    (Reason.STATE_LOST, {"observation": Observation("x", state_lost=True)}, {}, {"state_lost": True}),
    (Reason.MIXED_VERSIONS, {"policy_versions": ("1", "2")}, {"mixed_versions": False}, {}),
    (Reason.SECRET, {"observation": Observation("key sk-123")}, {"secrets": (r"sk-\d+",)}, {"secrets": (r"pk-\d+",)}),
]


@pytest.mark.parametrize(("reason", "changes", "rules", "allowing"), CASES, ids=[str(case[0]) for case in CASES])
def test_h08_each_rule_leaves_out_what_it_names_and_no_more(
    reason: Reason, changes: dict[str, Any], rules: dict[str, Any], allowing: dict[str, Any] | None
) -> None:
    assert trainable(transition(), FilterRules(**rules)) is (reason if reason is Reason.TOO_LONG else None)
    assert trainable(transition(**changes), FilterRules(**rules)) is reason
    if allowing is not None:
        assert trainable(transition(**changes), FilterRules(**allowing)) is None


def test_h08_what_is_left_out_is_counted_and_the_rest_is_masked_to_the_observation(tmp_path: Path) -> None:
    write(tmp_path, "a", jobs(12))
    transitions = everything(tmp_path).transitions
    rules = FilterRules(secrets=("exit 127",))
    made, left_out = examples(transitions, rules)
    kept = [t for t in transitions if trainable(t, rules) is None]
    assert sum(left_out.values()) + len(kept) == len(transitions)
    assert left_out[Reason.NO_CALL]
    assert left_out[Reason.SECRET]
    spans = Counter(example.ids[: span.stop] for example in made for span in example.spans)
    assert spans == Counter(t.ids[:stop] for t in kept for _, stop in t.targets)
    assert all(span.role is Role.OBSERVATION and span.trained for example in made for span in example.spans)
    assert len(made) == len({t.rollout for t in kept}), "turns of a rollout share an example"


def test_h08_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="no regular expression"):
        FilterRules(secrets=("(",))


def test_failed_rollouts_count(tmp_path: Path) -> None:
    results = write(tmp_path, "a", jobs(30))
    failed = {r.seed for r in results if r.trajectory.stop in (StopReason.CUT, StopReason.EMPTY, StopReason.TURN_LIMIT)}
    made, _ = examples(everything(tmp_path).transitions, FilterRules())
    assert failed
    assert len(made) == len([r for r in results if any(t.calls for t in r.trajectory.turns)])
