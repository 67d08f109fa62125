"""verl's own manager and workers write what the policy saw into the transition log: every turn of training, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

from transformers import AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.workers.rollout.llm_server import LLMServerClient

from obsspec.train.transition_log import Follower, News
from obsspec.train.transitions import FilterRules, Reason, Transition, examples, trainable
from obsspec.values import Outcome, StopReason, Tokens
from tests.integrations.verl.batches import assert_equal, totals
from tests.integrations.verl.cluster import Cluster, Servers, batch_of, configuration, start
from tests.integrations.verl.tools import answer

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

PROMPTS = ("Look around.", "List the files, please.")
TROUBLE = "\n".join(["Do this.", "run:", "ls", "fail", "unknown", "ls && unknown", "cat plan.txt && ls", "broken"])
FULL = "\n".join(["Do this.", "run:", *["long"] * 12])
VERSION = "world-000007-0123abcd"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log for each agent loop, called like it."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def config(running: None, world_model: Any, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    del running
    language = {"world_model_url": world_model.url, "world_model_name": "oracle", "rules": False, "memory": False}
    chain = {**language, "gate": False, "depth": 3, "world_model_max_tokens": 96}
    loops = {
        "sequential": {"speculate": False},
        "speculative": chain,
        "wrong": {**chain, "predict_timeout_s": 21},  # which share nothing with the others
        "versions": {**chain, "predict_timeout_s": 22},
        "cancelled": {**chain, "predict_timeout_s": 23},
        "failing": chain,
    }
    logged = {name: {**fields, "transitions": str(logs / name)} for name, fields in loops.items()}
    return configuration(tmp_path_factory.mktemp("transitions"), logged)


@pytest.fixture(scope="module")
def cluster(config: Any) -> Cluster:
    return start(config)


@pytest.fixture(scope="module")
def worker(config: Any) -> tuple[AgentLoopWorker, Servers]:
    servers = Servers.start(config)
    return AgentLoopWorker(config, LLMServerClient(config, load_balancer_handle=servers.balancer)), servers


def everything(log: Path) -> News:
    follower, news = Follower(log), News()
    while (more := follower.poll(7)).transitions or more.ended:
        news.transitions += more.transitions
        news.ended += more.ended
    return news


def by_rollout(log: Path, step: int | None = None) -> dict[tuple[str, str], list[Transition]]:
    """The turns of each rollout, in order."""
    found: dict[tuple[str, str], list[Transition]] = {}
    for turn in everything(log).transitions:
        if step is None or turn.step == step:
            found.setdefault((turn.writer, turn.rollout), []).append(turn)
    return {name: sorted(turns, key=lambda turn: len(turn.ids)) for name, turns in found.items()}


def in_batch(batch: Any) -> Counter[tuple[Tokens, Tokens]]:
    """Token ids and masks of the rollouts in what the trainer gets."""
    found = Counter[tuple[Tokens, Tokens]]()
    for number in range(len(batch)):
        there = batch.batch["attention_mask"][number].bool()
        prompt = int(there[:512].sum())
        ids = tuple(batch.batch["input_ids"][number][there].tolist())
        sampled = batch.batch["response_mask"][number][: len(ids) - prompt].tolist()
        found[ids, (0,) * prompt + tuple(sampled)] += 1
    return found


def in_log(log: Path, step: int) -> Counter[tuple[Tokens, Tokens]]:
    found = Counter[tuple[Tokens, Tokens]]()
    for turns in by_rollout(log, step).values():
        mask = [0] * len(turns[-1].ids)
        for turn in turns:
            begin, end = turn.action
            mask[begin:end] = [1] * (end - begin)
        found[turns[-1].ids, tuple(mask)] += 1
    return found


def plain(turns: list[Transition]) -> list[Transition]:
    """Without what was predicted, and where in the file they are."""
    return [replace(turn, offset=0, outcome=None, source="", world_version="") for turn in turns]


@pytest.mark.parametrize("prompts", [PROMPTS, (TROUBLE,), (FULL,)], ids=["usual", "trouble", "full"])
def test_g01_the_log_has_the_turns_of_the_batch_and_is_the_same_in_both_arms(
    cluster: Cluster, oracle: Any, logs: Path, prompts: tuple[str, ...]
) -> None:
    del oracle
    step = 10 + len(prompts[0])
    expected = cluster.manager.generate_sequences(batch_of("sequential", prompts, 2, step=step))
    cluster.servers.seen()
    found = cluster.manager.generate_sequences(batch_of("speculative", prompts, 2, step=step))
    cluster.servers.seen()
    assert_equal(expected, found)
    if prompts != (FULL,):  # there verl's batch is cut off in mid-turn
        assert in_log(logs / "sequential", step) == in_batch(expected)
    one, other = by_rollout(logs / "sequential", step), by_rollout(logs / "speculative", step)
    assert {name: plain(turns) for name, turns in one.items()} == {name: plain(turns) for name, turns in other.items()}
    assert len(one) == 2 * len(prompts)
    assert {writer for writer, _ in one} == {"agent_loop_worker_0", "agent_loop_worker_1"}
    matched = [turn.outcome for turns in other.values() for turn in turns].count(Outcome.MATCH)
    assert matched == totals(found)["match"]
    assert matched or prompts == (FULL,)  # whose answers are longer than a prediction may be
    assert {turn.outcome for turns in one.values() for turn in turns} == {None}


def test_each_turn_says_what_it_is_of(cluster: Cluster, config: Any, oracle: Any, logs: Path) -> None:
    del oracle
    cluster.manager.generate_sequences(batch_of("speculative", PROMPTS, 2, step=2))
    tokenizer = AutoTokenizer.from_pretrained(config.actor_rollout_ref.model.path)
    rollouts = by_rollout(logs / "speculative", 2)
    assert len({turns[0].group for turns in rollouts.values()}) == len(PROMPTS)
    for turns in rollouts.values():
        *with_tools, last = turns
        assert [turn.level for turn in turns] == list(range(len(turns)))
        assert last.calls == last.targets == ()
        assert last.policy_versions == ("3",) * len(turns)
        for turn in with_tools:
            assert len(turn.targets) == len(turn.calls) == len(turn.observations)
            for (begin, end), call, seen in zip(turn.targets, turn.calls, turn.observations, strict=True):
                assert seen.text == answer(call.command)
                assert tokenizer.decode(turn.ids[begin:end]) == f"{seen.text}\n</tool_response>"
                assert tokenizer.decode(turn.ids[:begin]).endswith("\n<tool_response>\n")
    made, left_out = examples([turn for turns in rollouts.values() for turn in turns], FilterRules())
    assert len(made) == len(rollouts)
    assert left_out == {Reason.NO_CALL: len(rollouts)}


def test_what_is_no_example_is_left_out_by_its_reason(cluster: Cluster, oracle: Any, logs: Path) -> None:
    """Calls that no tool answered, answers that verl cut, and one for which there was no room."""
    del oracle
    cluster.manager.generate_sequences(batch_of("speculative", (TROUBLE,), 2, step=3))
    for turns in by_rollout(logs / "speculative", 3).values():
        reasons = [trainable(turn, FilterRules()) for turn in turns]
        bad = Reason.NO_CALL
        assert reasons == [None, None, bad, bad, None, bad]  # in TROUBLE's order; a broken call is none: it is the end
    cluster.manager.generate_sequences(batch_of("speculative", (FULL,), 2, step=4))
    for turns in by_rollout(logs / "speculative", 4).values():
        assert trainable(turns[-1], FilterRules()) is Reason.UNSEEN
        assert {trainable(turn, FilterRules()) for turn in turns[:-1]} == {Reason.TRUNCATED}
        assert {trainable(turn, FilterRules(truncated=True)) for turn in turns[:-1]} == {None}
    ends = Counter(end.stop for end in everything(logs / "speculative").ended if end.step in (3, 4))
    assert ends == {StopReason.FINAL: 2, StopReason.CONTEXT_LIMIT: 2}


def test_rollouts_of_validation_never_enter(cluster: Cluster, oracle: Any, logs: Path) -> None:
    del oracle
    for agent in ("sequential", "speculative"):
        cluster.manager.generate_sequences(batch_of(agent, PROMPTS, 2, step=5, validate=True))
        assert by_rollout(logs / agent, 5) == {}
    cluster.manager.generate_sequences(batch_of("speculative", PROMPTS, 2, step=5))
    assert len(by_rollout(logs / "speculative", 5)) == 2 * len(PROMPTS)


def test_rollouts_that_are_made_again_are_there_once(cluster: Cluster, oracle: Any, logs: Path) -> None:
    del oracle
    cluster.manager.generate_sequences(batch_of("speculative", PROMPTS, 2, step=6))
    files = {path.name: path.read_bytes() for path in (logs / "speculative").iterdir()}
    cluster.manager.generate_sequences(batch_of("speculative", PROMPTS, 2, step=6))
    assert {path.name: path.read_bytes() for path in (logs / "speculative").iterdir()} == files


def test_each_turn_says_which_version_of_the_world_model_predicted(cluster: Cluster, oracle: Any, logs: Path) -> None:
    first, oracle.models = oracle.models, ("oracle", "world-000002-0123abcd", VERSION)
    try:
        found = cluster.manager.generate_sequences(batch_of("versions", PROMPTS, 2, step=1))
    finally:
        oracle.models = first
    turns = [turn for turns in by_rollout(logs / "versions").values() for turn in turns]
    versions = Counter(turn.world_version for turn in turns if turn.outcome is Outcome.MATCH)
    assert versions == {VERSION: totals(found)["match"]}


@pytest.mark.anyio
async def test_d11_a_cancelled_rollout_leaves_the_turns_it_finished_and_goes_on_from_them(
    worker: tuple[AgentLoopWorker, Servers], oracle: Any, logs: Path
) -> None:
    oracle.mode = "right"
    agents, servers = worker
    expected = await agents.generate_sequences(batch_of("sequential", PROMPTS, step=7))
    whole = {name[1]: plain(turns) for name, turns in by_rollout(logs / "sequential", 7).items()}
    for finished in (1, 3, 6):
        task = asyncio.create_task(agents.generate_sequences(batch_of("cancelled", PROMPTS, step=7)))
        while len(everything(logs / "cancelled").transitions) < finished:  # noqa: ASYNC110 - a file grows
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(servers.seen)
        found = {name[1]: plain(turns) for name, turns in by_rollout(logs / "cancelled", 7).items()}
        assert found != whole
        for name, turns in found.items():
            assert turns == whole[name][: len(turns)]
    again = await agents.generate_sequences(batch_of("cancelled", PROMPTS, step=7))
    await asyncio.to_thread(servers.seen)
    assert_equal(expected, again)
    assert {name[1]: plain(turns) for name, turns in by_rollout(logs / "cancelled", 7).items()} == whole
    ends = {end.stop for end in everything(logs / "cancelled").ended}
    assert ends == {StopReason.CANCELLED, StopReason.FINAL}


@pytest.mark.anyio
async def test_a_rollout_that_fails_leaves_the_turns_it_finished(
    worker: tuple[AgentLoopWorker, Servers], oracle: Any, logs: Path
) -> None:
    del oracle
    agents, servers = worker
    prompt = "\n".join(["Do this.", "run:", "ls", "mkdir out", "crash"])
    for _ in range(2):
        with pytest.raises(Exception, match="the engine is gone"):
            await agents.generate_sequences(batch_of("failing", (prompt,)))
    await asyncio.to_thread(servers.seen)
    ((_, turns),) = by_rollout(logs / "failing").items()
    assert [call.command for turn in turns for call in turn.calls] == ["ls", "mkdir out"]
    (ended,) = {(end.stop, "the engine is gone" in end.error) for end in everything(logs / "failing").ended}
    assert ended == (StopReason.ENGINE_ERROR, True)


@pytest.mark.anyio
async def test_a_wrong_prediction_is_not_in_the_log(
    worker: tuple[AgentLoopWorker, Servers], oracle: Any, logs: Path
) -> None:
    agents, servers = worker
    await agents.generate_sequences(batch_of("sequential", PROMPTS, step=8))
    oracle.mode = "wrong"
    await agents.generate_sequences(batch_of("wrong", PROMPTS, step=8))
    await asyncio.to_thread(servers.seen)
    one, other = by_rollout(logs / "sequential", 8), by_rollout(logs / "wrong", 8)
    assert {name: plain(turns) for name, turns in one.items()} == {name: plain(turns) for name, turns in other.items()}
    outcomes = {turn.outcome for turns in other.values() for turn in turns if turn.calls}
    assert Outcome.ROLLBACK in outcomes
    assert Outcome.MATCH not in outcomes
