"""The launch script says what verl 0.9.1 understands: every option exists, and the loops can be made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.utils.import_utils import load_class_from_fqn

from obsspec.integrations.verl.settings import VerlSettings

pytestmark = pytest.mark.verl

RECIPE = Path(__file__).parents[3] / "recipe" / "verl"


def test_every_option_of_the_launch_script_exists(tmp_path: Path) -> None:
    """The script runs, with a python that tells its arguments instead of training."""
    told = tmp_path / "python3"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    told.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TRAIN": "t.parquet", "VAL": "v.parquet", "TOOLS": "tools.py"}
    script = ["bash", str(RECIPE / "run_qwen3_8b_grpo.sh"), "trainer.total_epochs=2"]
    ran = subprocess.run(script, env=env, capture_output=True, text=True, check=True)
    module, *overrides = ran.stdout.splitlines()[1:]
    assert module == "verl.trainer.main_ppo"
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    agent = config.actor_rollout_ref.rollout.agent
    assert Path(agent.agent_loop_config_path) == RECIPE / "agent_loops.yaml"
    assert load_class_from_fqn(agent.agent_loop_manager_class, "AgentLoopManager").__name__ == "LoggingManagerTQ"
    assert config.trainer.total_epochs == 2


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:8010"])
def test_the_loops_have_fields_that_exist(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("WORLD_MODEL_URL", url)
    monkeypatch.setenv("WORLD_MODEL_NAME", "world-model" if url else "")
    entries = OmegaConf.to_container(OmegaConf.load(RECIPE / "agent_loops.yaml"), resolve=True)
    assert isinstance(entries, list)
    speculative, sequential = (
        VerlSettings.from_fields({key: value for key, value in entry.items() if key not in ("name", "_target_")})
        for entry in entries
    )
    assert speculative.world_model_url == url
    assert not sequential.speculate


def test_without_its_data_the_script_says_what_is_missing() -> None:
    script = ["bash", str(RECIPE / "run_qwen3_8b_grpo.sh")]
    ran = subprocess.run(script, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "TRAIN: the training data" in ran.stderr
