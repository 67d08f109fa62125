"""Statistics reach the trainer's log, by both ways in which verl's trainers take rollouts."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

import torch
import transfer_queue
from omegaconf import OmegaConf
from verl.utils import tensordict_utils
from verl.workers.rollout.llm_server import LLMServerClient

from obsspec.integrations.verl.managers import LoggingManager, LoggingManagerTQ, log_statistics
from obsspec.train.transition_log import Follower
from tests.integrations.verl.batches import totals
from tests.integrations.verl.cluster import SEQUENTIAL, Servers, batch_of, configuration

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

PROMPTS = ("Look around.", "List the files, please.")
_TENSORS = ("prompts", "responses", "response_mask", "rollout_log_probs")


@pytest.fixture(scope="module")
def config(running: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    del running
    folder = tmp_path_factory.mktemp("trainer")
    overrides = (
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "actor_rollout_ref.rollout.n=2",
        "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "transfer_queue.backend.SimpleStorage.total_storage_size=1000",
    )
    loops = {"fast": {"gate": False}, "logged": {"gate": False, "transitions": str(folder / "log")}}
    return configuration(folder, loops, *overrides)


@pytest.fixture(scope="module")
def queue(config: Any) -> Generator[None, None, None]:
    transfer_queue.init(config.transfer_queue)
    yield
    transfer_queue.close()


def test_a_batch_of_rollouts_adds_its_sums_to_the_timings(config: Any) -> None:
    servers = Servers.start(config)
    client = LLMServerClient(config, load_balancer_handle=servers.balancer)
    manager = LoggingManager.create(config=config, llm_client=client)
    manager.generate_sequences(batch_of("fast", PROMPTS))
    output = manager.generate_sequences(batch_of("fast", PROMPTS))
    timing = output.meta_info["timing"]
    assert timing["agent_loop/obsspec/match"] == totals(output)["match"] > 0
    assert timing["agent_loop/obsspec/match_share"] > 0
    assert "agent_loop/tool_calls/mean" in timing
    plain = manager.generate_sequences(batch_of(SEQUENTIAL, PROMPTS)).meta_info["timing"]
    assert not any("obsspec" in name for name in plain)
    servers.seen()


def test_g01_the_transfer_queue_gets_the_same_rollouts_and_the_log_their_sums(config: Any, queue: None) -> None:
    del queue
    servers = Servers.start(config)
    client = LLMServerClient(config, load_balancer_handle=servers.balancer)
    manager = LoggingManagerTQ.create(config=config, llm_client=client)
    expected = _rollouts(manager, SEQUENTIAL)
    servers.seen()
    for _ in range(2):
        found = _rollouts(manager, "fast")
        servers.seen()
    for name in _TENSORS:
        pairs = zip(_field(expected, name), _field(found, name), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), name
    assert [tag["max_global_steps"] for tag in expected.tags] == [tag["max_global_steps"] for tag in found.tags]

    class Trainer:
        def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *, global_steps: int) -> None:
            metrics["training/global_step"] = global_steps

    log_statistics(Trainer)
    log_statistics(Trainer)  # once is enough
    metrics: dict[str, Any] = {}
    Trainer()._compute_metrics(found, metrics, global_steps=7)
    assert metrics["training/global_step"] == 7
    assert metrics["obsspec/match"] > 0
    metrics = {}
    Trainer()._compute_metrics(expected, metrics, global_steps=8)
    assert metrics == {"training/global_step": 8}


def test_rollouts_of_the_transfer_queue_are_in_the_transition_log_and_those_of_validation_are_not(
    config: Any, queue: None
) -> None:
    del queue
    (log,) = (Path(loop.transitions) for loop in OmegaConf.load(_loops(config)) if "transitions" in loop)
    servers = Servers.start(config)
    client = LLMServerClient(config, load_balancer_handle=servers.balancer)
    manager = LoggingManagerTQ.create(config=config, llm_client=client)
    _rollouts(manager, "logged", validate=True)
    assert not log.exists()
    batch = _rollouts(manager, "logged")
    servers.seen()
    news = Follower(log).poll()
    assert len(news.ended) == len(batch.keys)
    whole = {
        end.rollout: max((t.ids for t in news.transitions if t.rollout == end.rollout), key=len) for end in news.ended
    }
    pairs = zip(_field(batch, "prompts"), _field(batch, "responses"), strict=True)
    assert sorted(whole.values()) == sorted((*prompt.tolist(), *response.tolist()) for prompt, response in pairs)
    assert {turn.step for turn in news.transitions} == {1}


def _loops(config: Any) -> str:
    return config.actor_rollout_ref.rollout.agent.agent_loop_config_path


def _rollouts(manager: Any, agent: str, *, validate: bool = False) -> Any:
    """What the trainer finds in the queue when all is done: keys, tags, partition."""
    partition = "val" if validate else "train"
    uids = [uuid4().hex for _ in PROMPTS]
    fields = {
        "uid": uids,
        "raw_prompt": [[{"role": "user", "content": prompt}] for prompt in PROMPTS],
        "agent_name": [agent] * len(PROMPTS),
        "data_source": ["test"] * len(PROMPTS),
        "index": list(range(len(PROMPTS))),
    }
    batch = tensordict_utils.get_tensordict(fields, {"global_steps": 1} | ({"validate": True} if validate else {}))
    transfer_queue.kv_batch_put(keys=uids, partition_id=partition, tags=[{"status": "pending"}] * len(uids))
    manager.generate_sequences(batch)
    found: dict[str, Any] = {}
    while [found.get(uid, {}).get("status") for uid in uids] != ["finished"] * len(uids):
        time.sleep(0.2)
        found = transfer_queue.kv_list(partition)[partition]
        assert "failure" not in {found[uid]["status"] for uid in uids}
    keys = [f"{uid}_{number}_0" for uid in uids for number in range(1 if validate else 2)]
    return SimpleNamespace(keys=keys, tags=[found[key] for key in keys], partition_id=partition)


def _field(batch: Any, name: str) -> list[torch.Tensor]:
    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[name])
    return list(data[name].unbind())
