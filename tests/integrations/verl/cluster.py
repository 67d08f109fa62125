"""verl's own agent-loop stack on the CPU: manager, workers, balancer and Ray as they are, servers that are stubs."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
from hydra import compose, initialize_config_module
from verl.experimental.agent_loop import AgentLoopManager
from verl.protocol import DataProto
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.router import get_router_handle

from tests.integrations.verl.model import write_model
from tests.integrations.verl.stub import Seen, StubServer

ROOT = Path(__file__).parents[3]
SEQUENTIAL, SPECULATIVE = "tool_agent", "obsspec_tool_agent"
_LOOPS = """
- name: {name}
  _target_: obsspec.integrations.verl.loop.SpeculativeToolAgentLoop
  {fields}
"""


@dataclass(slots=True)
class Cluster:
    config: Any
    manager: Any
    servers: list[Any]
    balancer: Any
    rollouts: list[str] = field(default_factory=list)

    def generate(self, agent: str, prompts: Sequence[str], *, n: int = 1) -> tuple[DataProto, float]:
        """The batch that verl's trainer would get, and the seconds it took."""
        raw = np.empty(len(prompts) * n, dtype=object)
        raw[:] = [[{"role": "user", "content": prompt}] for prompt in prompts for _ in range(n)]
        names = np.array([agent] * len(raw), dtype=object)
        source = np.array(["test"] * len(raw), dtype=object)
        fields = {"raw_prompt": raw, "agent_name": names, "data_source": source}
        batch = DataProto(batch=None, non_tensor_batch=fields, meta_info={"global_steps": 1})
        start = time.monotonic()
        output = self.manager.generate_sequences(batch)
        return output, time.monotonic() - start

    def report(self) -> tuple[list[Seen], int]:
        """Of all servers: the requests since the last report, and how many run now."""
        reports = ray.get([server.report.remote() for server in self.servers])
        return [seen for requests, _ in reports for seen in requests], sum(running for _, running in reports)

    def set(self, **values: Any) -> None:
        ray.get([server.set.remote(**values) for server in self.servers])

    def in_flight(self) -> int:
        """By the balancer's books; releases are on their way for a moment."""
        for _ in range(40):
            left = ray.get(self.balancer.get_total_inflight.remote())
            if not left:
                break
            time.sleep(0.05)
        return left


def configuration(folder: Path, fields: str, *overrides: str) -> Any:
    loops = folder / "loops.yaml"
    loops.write_text(_LOOPS.format(name=SPECULATIVE, fields=fields), encoding="utf-8")
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
                f"{rollout}.agent.agent_loop_config_path={loops}",
                f"{rollout}.multi_turn.enable=True",
                f"{rollout}.multi_turn.format=hermes",
                f"{rollout}.multi_turn.max_parallel_calls=2",
                f"{rollout}.multi_turn.function_tool_path={Path(__file__).parent / 'tools.py'}",
                "data.max_prompt_length=512",
                "data.max_response_length=1024",
                *overrides,
            ],
        )


@contextmanager
def ray_running() -> Generator[None, None, None]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ray.init(
        num_cpus=4, include_dashboard=False, logging_level="ERROR", runtime_env={"env_vars": {"PYTHONPATH": paths}}
    )
    try:
        yield
    finally:
        ray.shutdown()


def start(config: Any, *, servers: int = 2) -> Cluster:
    folder = config.actor_rollout_ref.model.path
    actors = {f"server{number}": StubServer.remote(folder) for number in range(servers)}
    balancer = get_router_handle(actors)
    client = LLMServerClient(config, load_balancer_handle=balancer)
    manager = AgentLoopManager.create(config=config, llm_client=client)
    return Cluster(config, manager, list(actors.values()), balancer)
