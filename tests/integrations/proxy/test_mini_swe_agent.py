"""mini-swe-agent, unmodified, through the proxy: it does the same as without it, and waits less."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.integrations.proxy.engine import Engine, running

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
pytest.importorskip("minisweagent", reason="mini-swe-agent is not installed")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
SCRIPT = (
    "mkdir -p pkg && cd pkg && pwd",
    "printf 'one\\ntwo\\nthree\\n' > pkg/words.txt",
    "cat pkg/words.txt",
    "wc -l < pkg/words.txt",
    "cat missing.txt",
    "sleep 0.1; echo slow",
    "grep -n t pkg/words.txt",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)


def play(url: str, folder: Path, kind: str, seed: int) -> list[dict[str, Any]]:
    """One run of the agent in an empty folder. What it wrote into its messages, clocks left out."""
    import yaml
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.config import get_config_path
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models import get_model

    config = yaml.safe_load(get_config_path("mini" if kind == "tools" else "mini_textbased").read_text())
    model_config = config["model"] | {
        "model_name": "openai/m",
        "model_class": "litellm" if kind == "tools" else "litellm_textbased",
        "cost_tracking": "ignore_errors",
        "model_kwargs": {"api_base": f"{url}/v1", "api_key": "k", "seed": seed, "drop_params": True},
    }
    agent_config = {
        key: value
        for key, value in config["agent"].items()
        if key in ("system_template", "instance_template", "step_limit", "cost_limit")
    }
    folder.mkdir(exist_ok=True)
    agent = DefaultAgent(get_model(config=model_config), LocalEnvironment(cwd=str(folder)), **agent_config)
    agent.run("count the words")
    return [{key: value for key, value in message.items() if key != "extra"} for message in agent.messages]


@pytest.mark.parametrize("kind", ["tools", "text"])
async def test_mini_swe_agent_does_the_same_and_is_answered_early(kind: str, tmp_path: Path) -> None:
    engine = Engine(SCRIPT, first_s=0.05, text_protocol=kind == "text", fence="mswea_bash_command")
    async with running(engine) as (server, url, service):
        for seed in range(3):
            runs: list[list[dict[str, Any]]] = []
            for at in (server.url, url):
                folder = tmp_path / "work"
                runs.append(await anyio.to_thread.run_sync(partial(play, at, folder, kind, seed)))
                for path in sorted(folder.rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
            assert runs[0] == runs[1]
            assert len(runs[0]) > 2 * len(SCRIPT)
        figures = service.parts.figures
        assert figures.claimed >= 8
        assert figures.hidden_s > 0
