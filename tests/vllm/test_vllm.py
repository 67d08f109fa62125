"""What obsspec needs of an engine, shown on a real vLLM: equality, cancellation, prefixes, priorities, versions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import anyio
import pytest

from obsspec.compare.run import finished_pairs
from obsspec.models.hf_folder import write_hf_folder
from obsspec.models.tokenizer import load_vocabulary
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.render.terminal import TerminalRenderer
from obsspec.rollout.equality import differences
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.speculation.session import SpeculationSettings, open_session
from obsspec.testing.conformance import check_policy
from obsspec.testing.vllm_server import NAME, SLOTS, Server
from obsspec.testing.world_model import ScriptedWorldModel
from obsspec.values import Completion, Observation, Outcome, Priority, Sampling, Tokens

BLOCKS = 256  # tokens: vLLM caches prefixes in whole blocks, on a CPU of 128
SAME_LOGPROB = 1e-3  # natural log: numerics depend on the batch, in float32 by some 1e-5


def tokens(seed: int, length: int) -> Tokens:
    random = Random(seed)
    return tuple(random.randrange(300, 5000) for _ in range(length))


async def until(server: Server, holds: Callable[[int, int], bool], within_s: float = 60.0) -> bool:
    """Whether that holds of the requests running and waiting at the engine, by then."""
    with anyio.move_on_after(within_s):
        while not holds(*await anyio.to_thread.run_sync(server.requests)):  # noqa: ASYNC110 - another process
            await anyio.sleep(0.05)
        return True
    return False


def prediction_s(server: Server) -> float:
    """What a prediction takes here, at least a second."""
    body = {"model": NAME, "max_tokens": 24, "ignore_eos": True}
    server.post("/v1/completions", {**body, "prompt": list(tokens(8, 150))})  # the very first call takes much longer
    began = time.monotonic()
    server.post("/v1/completions", {**body, "prompt": list(tokens(9, 150))})
    return max(1.0, time.monotonic() - began)


def idle(running: int, waiting: int) -> bool:
    return running == waiting == 0


def test_rollouts_of_both_arms_have_the_same_tokens_commands_and_reward(server: Server, tmp_path: Path) -> None:
    tool_s = 1.5 * prediction_s(server)  # or no prediction would be there in time
    command = [sys.executable, "-m", "obsspec.cli", "compare", "--policy", server.url, "--policy-name", NAME]
    command += ["--tasks", "6", "--latency", f"uniform:{tool_s},{2 * tool_s}", "--depth", "2", "--out", str(tmp_path)]
    command += ["--sources", "lm", "--no-gate"]  # a language model alone: some predictions are wrong
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pairs = finished_pairs(RunFolder(tmp_path, json.loads((tmp_path / "config.json").read_text())))
    assert len(pairs) == 6
    outcomes = [a.outcome for p in pairs if p.speculative.speculation for a in p.speculative.speculation.attempts]
    assert {Outcome.MATCH, Outcome.ROLLBACK} <= set(outcomes), "nothing was kept, or nothing was taken back"
    for pair in pairs:
        others = (pair.speculative, pair.observation)
        for other in [result for result in others if result is not None]:
            assert set(differences(pair.sequential, other)) <= {"logprobs"}
            both = zip(pair.sequential.trajectory.logprobs, other.trajectory.logprobs, strict=True)
            assert max(abs(x - y) for x, y in both) < SAME_LOGPROB


@pytest.mark.anyio
async def test_it_keeps_every_promise_of_a_policy(server: Server) -> None:
    async def open_requests() -> int:
        return sum(await anyio.to_thread.run_sync(server.requests))

    await check_policy(
        lambda: TokenEndpointPolicy(server.url, NAME),
        prompts=[tokens(1, 40), tokens(2, 60)],
        sampling=Sampling(max_tokens=24, stop_token_ids=(2,)),
        open_requests=open_requests,
        exact=False,
    )


@pytest.mark.anyio
async def test_seeded_samples_are_the_same_alone_and_in_a_batch(policy: TokenEndpointPolicy) -> None:
    calls = [(tokens(seed, 50), Sampling(max_tokens=24, seed=seed)) for seed in range(SLOTS)]
    alone = [await policy.generate(*call) for call in calls]
    together: dict[int, Completion] = {}

    async def one(number: int) -> None:
        together[number] = await policy.generate(*calls[number])

    async with anyio.create_task_group() as tasks:
        for number in range(len(calls)):
            tasks.start_soon(one, number)
    for number, completion in enumerate(alone):
        assert together[number].token_ids == completion.token_ids


@pytest.mark.anyio
@pytest.mark.parametrize("crowd", [1, SLOTS + 4], ids=["decoding", "queued"])
async def test_d01_cancelled_requests_leave_the_engine_within_a_second(
    server: Server, policy: TokenEndpointPolicy, crowd: int
) -> None:
    """In the usual case: one step of a busy CPU may take longer by itself, so it is the middle one of three."""
    at_work, gone_s = min(crowd, SLOTS), list[float]()
    for attempt in range(3):
        assert await until(server, idle)
        async with anyio.create_task_group() as tasks:
            for number in range(crowd):
                sampling = Sampling(max_tokens=1500, seed=number)
                tasks.start_soon(policy.generate, tokens(crowd * attempt + number, 60), sampling)
            assert await until(server, lambda running, waiting: (running, waiting) == (at_work, crowd - at_work))
            tasks.cancel_scope.cancel()
        cancelled = time.monotonic()
        assert await until(server, idle, 10.0)
        gone_s.append(time.monotonic() - cancelled)
    assert sorted(gone_s)[1] < 1.0, gone_s


def test_after_a_rollback_the_prefix_is_still_cached(server: Server) -> None:
    history = tokens(11, 2 * BLOCKS)

    def cached(ids: Tokens) -> int:
        body = {"model": NAME, "prompt": list(ids), "max_tokens": 1, "temperature": 0}
        usage = server.post("/v1/completions", body).json()["usage"]
        return (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    assert cached(history) == 0
    assert cached(history + tokens(12, 20)) >= BLOCKS  # the branch on the predicted observation
    assert cached(history + tokens(13, 20)) >= BLOCKS  # the turn made again on the real one


@pytest.mark.anyio
async def test_committed_requests_go_before_speculative_ones_that_wait(
    server: Server, policy: TokenEndpointPolicy
) -> None:
    assert await until(server, idle)
    first: list[str] = []

    async def ask(name: str, priority: Priority, seed: int) -> None:
        def begun(count: int) -> None:
            if name not in first:
                first.append(name)

        await policy.generate(tokens(seed, 40), Sampling(max_tokens=60, seed=seed), priority=priority, on_tokens=begun)

    async with anyio.create_task_group() as tasks:
        for number in range(2 * SLOTS):
            tasks.start_soon(ask, f"speculative {number}", Priority.SPECULATIVE, number)
        assert await until(server, lambda running, waiting: running + waiting == 2 * SLOTS)
        tasks.start_soon(ask, "committed", Priority.COMMITTED, 99)
    assert first.index("committed") <= SLOTS  # the slots were taken; of those that waited it was the first


@pytest.mark.anyio
async def test_e01_new_weights_keep_no_cache_and_no_branch_of_the_old_ones(
    server: Server, policy: TokenEndpointPolicy, model: Path, tmp_path: Path
) -> None:
    """Weights are reloaded in place while a branch stands: with `strict_version` it is not claimed, and the turn is
    drawn from the new weights. A cache of the old weights would show in the logprobs."""
    other = write_hf_folder(tmp_path / "base")  # the base model, without the adapter
    renderer = TerminalRenderer(load_vocabulary())
    rules = RolloutRules(renderer, Limits(max_turns=4, max_turn_tokens=24, max_context=1024), seed="e01")
    follow = rules.first("Create the directory 'alpha' in the current directory, then list what is there.")
    assert follow.key is not None
    right = ScriptedWorldModel(lambda context: (Observation("alpha"),))
    settings = SpeculationSettings(strict_version=True)
    policy.weight_version = "old"
    try:
        async with open_session(policy, right, rules, settings=settings) as session:
            before = await session.policy.generate(follow.key.prompt, follow.key.sampling)
            turn = rules.parse(before)
            assert turn.calls, "the policy calls no tool: there is nothing to speculate on"
            key = rules.follow(0, follow.key, before, (Observation("alpha"),)).key
            assert key is not None
            await anyio.sleep(3)  # the branch is finished
            assert session.report.predictions_started == 1
            await anyio.to_thread.run_sync(reload, server, other)
            policy.weight_version = "new"
            after = await session.policy.generate(key.prompt, key.sampling)
        fresh = await policy.generate(key.prompt, key.sampling)
        assert (before.weight_version, after.weight_version) == ("old", "new")
        assert after.token_ids == fresh.token_ids
        assert max(abs(x - y) for x, y in zip(after.logprobs, fresh.logprobs, strict=True)) < SAME_LOGPROB
    finally:
        await anyio.to_thread.run_sync(reload, server, model)
    old = await policy.generate(key.prompt, key.sampling)
    assert old.logprobs != fresh.logprobs  # the weights really are others


def reload(server: Server, folder: Path) -> None:
    """The documented way to put new weights under a running server (its development mode)."""
    server.post("/pause?mode=keep")
    server.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
    server.post("/reset_prefix_cache")
    server.post("/resume")
