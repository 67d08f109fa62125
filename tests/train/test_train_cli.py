"""What is missing on a machine is one sentence that names the fix."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from obsspec.train import cli
from obsspec.train.policy_settings import PolicySettings, Schedule
from obsspec.train.rollout_settings import RolloutSettings
from obsspec.train.terminal import check_rollouts, task_of
from obsspec.train.versions import VersionFolder
from obsspec.train.world_settings import WorldSettings
from obsspec.values import ConfigError
from tests.models.test_merge import write_adapter

HERE = Path("somewhere")
COMMANDS = [partial(cli.policy, HERE, HERE), partial(cli.co, HERE, HERE), partial(cli.world, HERE, HERE, HERE)]


@pytest.mark.parametrize("command", COMMANDS, ids=["policy", "co", "world"])
def test_without_torch_the_fix_is_named(command: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"torch is not installed: pip install"):
        command()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: PolicySettings(group=1), "--group"),
        (lambda: PolicySettings(prompts=3, group=3, micro_batch=4), "--micro-batch"),
        (lambda: RolloutSettings(sources="rules,guess"), "guess"),
        (lambda: WorldSettings(round=0), "--round"),
        (lambda: PolicySettings(train_threads=-1), "--train-threads"),
        (lambda: PolicySettings(learning_rate=-1e-5), "--learning-rate"),
        (lambda: PolicySettings(clip=0), "--clip"),
        (lambda: WorldSettings(patience_s=0), "--patience-s"),
        (lambda: WorldSettings(patience_s=-1), "--patience-s"),
        (lambda: WorldSettings(learning_rate=float("nan")), "--learning-rate"),
        (lambda: WorldSettings(secret=("(",)), "no regular expression"),
        (lambda: RolloutSettings(concurrency=0), "--concurrency"),
        (lambda: RolloutSettings(max_turns=0), "--max-turns"),
        (lambda: RolloutSettings(latency="-1"), "latency '-1'"),
        (lambda: cli.evaluate(HERE, HERE, limit=0), "--limit"),
        (lambda: cli.evaluate(HERE, HERE, threads=0), "--threads"),
        (lambda: cli.evaluate(HERE, HERE, json=HERE / "far" / "score.json"), "--json"),
        (lambda: cli.publish(HERE, "http://localhost:1", HERE, keep_s=-1), "--keep-s"),
        (lambda: cli.publish(HERE, "localhost:8000", HERE), "http://HOST:PORT"),
        (lambda: cli.publish(HERE, "http://localhost:99999", HERE), "http://HOST:PORT"),
        (
            lambda: cli.co(HERE, HERE, rollouts=RolloutSettings(world_model="w.safetensors")),
            "--world-model.*leave it out",
        ),
        (lambda: check_rollouts(RolloutSettings(max_context=1 << 20)), "--max-context"),
        (lambda: check_rollouts(RolloutSettings(world_model="nowhere")), "--world-model"),
        (lambda: task_of("nonsense"), "FAMILY-DIFFICULTY-SEED"),
        (lambda: task_of("files-easy-x"), "FAMILY-DIFFICULTY-SEED"),
    ],
)
def test_wrong_options_are_a_sentence(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrong()


def test_a_folder_of_something_else_is_no_folder_of_versions(tmp_path: Path) -> None:
    def check(folder: Path, sources: str = "rules,lm") -> None:
        check_rollouts(RolloutSettings(world_model=str(folder), sources=sources))

    folders = {role: VersionFolder(tmp_path / role / "versions", role) for role in ("world", "policy")}
    for folder in folders.values():
        folder.publish(0, lambda path: write_adapter(path, "model.layers.0.mlp.up_proj", 4, 8), {})
    empty = tmp_path / "empty"
    empty.mkdir()
    check(folders["world"].path)
    check(empty)  # a trainer that is just starting
    check(tmp_path / "nowhere", sources="rules,memory")  # nobody asks it
    with pytest.raises(ConfigError, match=r"--world-model: .*give .*versions"):
        check(tmp_path / "world")
    with pytest.raises(ConfigError, match=r"--world-model: .*holds policy-000000-.*no version of the role 'world'"):
        check(folders["policy"].path)


def test_versions_of_another_role_are_not_published(tmp_path: Path) -> None:
    folder = VersionFolder(tmp_path / "versions", "policy")
    folder.publish(3, lambda path: write_adapter(path, "model.layers.0.mlp.up_proj", 4, 8), {})
    with pytest.raises(ConfigError, match=r"no version of the role 'world'"):
        cli.publish(folder.path, "http://localhost:1", tmp_path)


def test_a_task_is_found_by_its_id() -> None:
    assert task_of("files-easy-3").id == "files-easy-3"


def test_a_run_may_get_more_steps_unless_its_learning_rate_depends_on_them() -> None:
    def config(schedule: Schedule, steps: int) -> object:
        return PolicySettings(schedule=schedule, steps=steps).as_config()

    assert config(Schedule.CONSTANT, 5) == config(Schedule.CONSTANT, 6)
    assert config(Schedule.LINEAR, 5) == config(Schedule.LINEAR, 5)
    assert config(Schedule.LINEAR, 5) != config(Schedule.LINEAR, 6)
    assert config(Schedule.LINEAR, 5) != config(Schedule.CONSTANT, 5)


def test_a_run_goes_on_with_the_rewards_it_was_begun_with() -> None:
    assert PolicySettings().as_config() != PolicySettings(reward_unfinished=True).as_config()
