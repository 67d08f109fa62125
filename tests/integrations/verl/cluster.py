"""verl's own agent-loop stack on the CPU: manager, workers, balancer and Ray as they are, servers that are stubs."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.experimental.agent_loop import AgentLoopManager
from verl.protocol import DataProto
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.router import get_router_handle

from tests.integrations.verl.model import write_model
from tests.integrations.verl.stub import Seen, StubServer

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
SEQUENTIAL, SPECULATIVE = "tool_agent", "obsspec_tool_agent"
_TARGET = "obsspec.integrations.verl.loop.SpeculativeToolAgentLoop"


def batch_of(agent: str, prompts: Sequence[str], n: int = 1, *, step: int = 1, validate: bool = False) -> DataProto:
    raw = np.empty(len(prompts) * n, dtype=object)
    raw[:] = [[{"role": "user", "content": prompt}] for prompt in prompts for _ in range(n)]
    fields = {
        "raw_prompt": raw,
        "agent_name": np.array([agent] * len(raw), dtype=object),
        "data_source": np.array(["test"] * len(raw), dtype=object),
    }
    meta_info = {"global_steps": step, "validate": validate}
    return DataProto(batch=None, non_tensor_batch=fields, meta_info=meta_info)


@dataclass(slots=True)
class Servers:
    """Stubs and verl's balancer before them."""

    actors: list[Any]
    balancer: Any

    @classmethod
    def start(cls, config: Any, count: int = 1, **options: Any) -> Servers:
        folder = config.actor_rollout_ref.model.path
        actors = {f"server{number}": StubServer.remote(folder) for number in range(count)}
        return cls(list(actors.values()), get_router_handle(actors, **options))

    def reports(self) -> list[tuple[list[Seen], int]]:
        """By server: the requests since the last report, and how many run now."""
        return ray.get([server.report.remote() for server in self.actors])

    def seen(self) -> list[Seen]:
        """Of all servers, once it is sure that nothing runs."""
        reports = self.reports()
        assert [running for _, running in reports] == [0] * len(reports)
        assert self.in_flight() == 0
        return [seen for requests, _ in reports for seen in requests]

    def set(self, **values: Any) -> None:
        ray.get([server.set.remote(**values) for server in self.actors])

    def in_flight(self) -> int:
        """By the balancer's books; releases are on their way for a moment."""
        left = 0
        for _ in range(40):
            left = ray.get(self.balancer.get_total_inflight.remote())
            if not left:
                break
            time.sleep(0.05)
        return left


@dataclass(slots=True)
class Cluster:
    servers: Servers
    manager: Any

    def generate(self, agent: str, prompts: Sequence[str], *, n: int = 2) -> tuple[DataProto, float]:
        """The batch that verl's trainer would get, and the seconds it took. An even number of rollouts: two workers."""
        start = time.monotonic()
        output = self.manager.generate_sequences(batch_of(agent, prompts, n))
        return output, time.monotonic() - start


def configuration(folder: Path, loops: Mapping[str, Mapping[str, Any]], *overrides: str) -> Any:
    """verl's own, for the model folder written to `folder`. `loops`: the fields of each agent loop, by name."""
    entries = [{"name": name, "_target_": _TARGET, **fields} for name, fields in loops.items()]
    OmegaConf.save(OmegaConf.create(entries), folder / "loops.yaml")
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={write_model(folder / 'model')}",
                f"{rollout}.name=vllm",
                f"{rollout}.scheduling_policy=priority",
                f"{rollout}.prompt_length=512",
                f"{rollout}.response_length=1024",
                f"{rollout}.calculate_log_probs=True",
                f"{rollout}.agent.num_workers=2",
                f"{rollout}.agent.agent_loop_config_path={folder / 'loops.yaml'}",
                f"{rollout}.multi_turn.enable=True",
                f"{rollout}.multi_turn.format=hermes",
                f"{rollout}.multi_turn.max_parallel_calls=2",
                f"{rollout}.multi_turn.function_tool_path={HERE / 'verl_tools.py'}",
                "data.max_prompt_length=512",
                "data.max_response_length=1024",
                *overrides,
            ],
        )


@contextmanager
def ray_running() -> Generator[None, None, None]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {"env_vars": {"PYTHONPATH": paths}}
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False, runtime_env=env)
    try:
        yield
    finally:
        ray.shutdown()


def start(config: Any) -> Cluster:
    servers = Servers.start(config, count=2)
    client = LLMServerClient(config, load_balancer_handle=servers.balancer)
    return Cluster(servers, AgentLoopManager.create(config=config, llm_client=client))
