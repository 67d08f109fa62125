"""Our sandbox as verl's tool: commands reach it in order and once, also when they are sent ahead."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

import numpy as np
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.workers.rollout.llm_server import LLMServerClient

from obsspec.integrations.verl.statistics import FIELD
from obsspec.integrations.verl.tool import SandboxTool
from obsspec.integrations.verl.world import task_of
from obsspec.testing.sandbox import ScriptedSandbox
from obsspec.testing.shell import toy_shell
from obsspec.train.transition_log import Follower
from obsspec.values import ConfigError
from tests.integrations.verl.batches import assert_equal, totals
from tests.integrations.verl.cluster import SEQUENTIAL, Servers, batch_of, configuration

pytestmark = [pytest.mark.verl, pytest.mark.anyio, pytest.mark.sandbox, pytest.mark.timeout(600)]

SCHEMA = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "the command"}},
            "required": ["command"],
        },
    },
}
# Each command is told how many ran before it, so one that ran twice or in another order would be seen.
COUNT = "echo x >> log; wc -l < log"
TURNS = (COUNT, "mkdir out", COUNT, "cat notes.txt", "echo two > notes.txt", "cat notes.txt", COUNT)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def sandbox_server() -> Generator[str, None, None]:
    command = [sys.executable, "-m", "obsspec.sandbox.server", "--latency", "constant:0.3", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        if "url" not in said:
            pytest.skip(said["error"])
        yield said["url"]
        process.stdin.close()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def worker(
    running: None, sandbox_server: str, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Servers]:
    del running
    folder = tmp_path_factory.mktemp("sandbox")
    config_of_tool = {"type": "native", "url": sandbox_server, "max_characters": 10_000}
    tool = {"class_name": "obsspec.integrations.verl.tool.SandboxTool", "config": config_of_tool, "tool_schema": SCHEMA}
    OmegaConf.save(OmegaConf.create({"tools": [tool]}), folder / "tools.yaml")
    loops = {
        "plain": {"speculate": False, "transitions": str(logs / "plain")},
        "observing": {"gate": False, "depth": 3},
        "guarded": {"gate": False, "depth": 3, "guarded": True, "transitions": str(logs / "guarded")},
    }
    multi_turn = "actor_rollout_ref.rollout.multi_turn"
    overrides = (
        f"{multi_turn}.function_tool_path=null",
        f"{multi_turn}.tool_config_path={folder / 'tools.yaml'}",
        f"{multi_turn}.max_tool_response_length=12000",
    )
    config = configuration(folder, loops, *overrides)
    servers = Servers.start(config)
    return AgentLoopWorker(config, LLMServerClient(config, load_balancer_handle=servers.balancer)), servers


def _batch(agent: str, turns: tuple[str, ...] = TURNS) -> Any:
    batch = batch_of(agent, ["\n".join(["Do this.", "run:", *turns])], n=2)
    made = {"shell": {"create_kwargs": {"files": {"notes.txt": "one\n"}}}}
    batch.non_tensor_batch["tools_kwargs"] = np.array([made] * len(batch), dtype=object)
    return batch


@pytest.mark.parametrize("agent", ["observing", "guarded"])
async def test_c21_the_sandbox_sees_what_a_sequential_loop_sends(worker: tuple[Any, Servers], agent: str) -> None:
    loop, servers = worker
    expected = await loop.generate_sequences(_batch("plain"))
    for _ in range(3):
        found = await loop.generate_sequences(_batch(agent))
        assert_equal(expected, found)
        servers.seen()
    assert totals(found)["match"] > 0
    assert FIELD not in expected.non_tensor_batch
    if agent == "guarded":
        assert totals(found)["guarded_ran"] > 0
    else:
        assert totals(found)["guarded_sent"] == 0


@pytest.mark.parametrize("agent", ["plain", "guarded"])
async def test_the_transition_log_knows_how_the_commands_ended(
    worker: tuple[Any, Servers], logs: Path, agent: str
) -> None:
    """Also those that were sent ahead; the policy sees only what they printed."""
    loop, servers = worker
    commands = ("ls", "cat nothing", "true", "cat notes.txt")
    batch = _batch(agent, commands)
    task = task_of({name: values[0] for name, values in batch.non_tensor_batch.items()})
    for _ in range(2):
        await loop.generate_sequences(_batch(agent, commands))
    servers.seen()
    turns = [turn for turn in Follower(logs / agent).poll().transitions if turn.task_id == task]
    found = Counter((turn.calls[0].command, o.exit_code, o.empty) for turn in turns for o in turn.observations)
    ended = {("ls", 0, False), ("cat nothing", 1, False), ("true", 0, True), ("cat notes.txt", 0, False)}
    assert found == dict.fromkeys(ended, len(batch))


@pytest.fixture
def sandboxes(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedSandbox]:
    """All that the tool opened, with what each was made to run: fakes at the other end of a wire."""
    opened: list[ScriptedSandbox] = []

    @asynccontextmanager
    async def fake(_tool: Any, _made: dict[str, Any]) -> AsyncGenerator[ScriptedSandbox, None]:
        opened.append(ScriptedSandbox(toy_shell, delay_s=lambda _call: 0.02, way_s=lambda _number: 0.1))
        yield opened[-1]

    monkeypatch.setattr(SandboxTool, "open", fake)
    return opened


@pytest.mark.parametrize(
    "limits",
    [{}, {"max_assistant_turns": 4}, {"max_user_turns": 3}, {"response_length": 0}],
    ids=["none", "assistant-turns", "user-turns", "length"],
)
async def test_c20_only_what_the_loop_calls_runs_and_once_and_in_order(
    worker: tuple[Any, Servers], sandboxes: list[ScriptedSandbox], limits: dict[str, int]
) -> None:
    """verl's limits end a rollout before the tools of its last turn, so that turn's command may not be sent ahead."""
    template, servers = worker
    servers.set(token_s=0.001)  # so fast that several commands are under way together
    turns = ("echo one > f", "cat f", "cd sub", "pwd", "echo two > f", "cat f", "pwd")
    config = template.config.copy()
    rollout = config.actor_rollout_ref.rollout
    for name, value in limits.items():
        OmegaConf.update(rollout if name == "response_length" else rollout.multi_turn, name, value)
    if "response_length" in limits:  # such that the fifth turn's own words do not fit
        await template.generate_sequences(_batch("plain", turns))
        lengths = sorted({len(request.prompt_ids) for request in servers.seen()})
        rollout.response_length = lengths[4] - lengths[0] + 10
        sandboxes.clear()
    loop = AgentLoopWorker(config, LLMServerClient(config, load_balancer_handle=servers.balancer))
    expected = await loop.generate_sequences(_batch("plain", turns))
    (plain, _) = [sandbox.calls for sandbox in sandboxes]
    assert 0 < len(plain) <= len(turns)
    assert bool(limits) is (len(plain) < len(turns))
    for _ in range(3):
        sandboxes.clear()
        found = await loop.generate_sequences(_batch("guarded", turns))
        assert_equal(expected, found)
        assert [sandbox.calls for sandbox in sandboxes] == [plain, plain]
        servers.seen()
    assert totals(found)["guarded_ran"] > 0


async def test_in_another_loop_the_tool_says_what_it_needs(worker: tuple[Any, Servers]) -> None:
    loop, servers = worker
    found = await loop.generate_sequences(_batch(SEQUENTIAL, ("ls",)))
    servers.seen()
    assert "SandboxTool needs the agent loop obsspec_tool_agent" in loop.tokenizer.decode(found.batch["responses"][0])


def test_answers_that_verl_would_cut_can_not_be_guarded() -> None:
    tool = SandboxTool({"type": "native", "max_characters": 4000}, _schema())
    tool.check_length(4200)
    with pytest.raises(ConfigError, match=r"max_tool_response_length is 4199.* must be at least 4200"):
        tool.check_length(4199)


def test_an_unknown_field_of_the_tool_is_named() -> None:
    with pytest.raises(ConfigError, match="SandboxTool: unknown field uri"):
        SandboxTool({"type": "native", "uri": "http://127.0.0.1:1"}, _schema())


def _schema() -> Any:
    from verl.tools.schemas import OpenAIFunctionToolSchema

    return OpenAIFunctionToolSchema.model_validate(SCHEMA)
