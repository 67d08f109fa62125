"""GRPO through TRL: the ratios are against recorded logprobs, both pipelines learn the same, killed runs go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from obsspec.rollout.equality import differences  # noqa: E402
from obsspec.rollout.store import RunFolder  # noqa: E402
from obsspec.train.logprobs import log_probs  # noqa: E402
from obsspec.train.policy import saver, train_policy  # noqa: E402
from obsspec.train.policy_log import Log  # noqa: E402
from obsspec.train.policy_settings import PolicySettings, Schedule  # noqa: E402
from obsspec.train.policy_trainer import MarkComplete, MergeAfterStep, score_some  # noqa: E402
from obsspec.train.rollout_settings import RolloutSettings  # noqa: E402
from obsspec.train.versions import VersionFolder  # noqa: E402
from obsspec.values import ConfigError  # noqa: E402
from tests.train.test_transitions import everything, places  # noqa: E402
from tests.train.tiny_policy import start_adapter, tiny_model, train  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start_adapter(tmp_path_factory.mktemp("start"))


def log(out: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [entry for entry in entries if "reward" in entry]


def test_log_probabilities_and_their_gradient_are_those_of_the_softmax() -> None:
    torch.manual_seed(0)
    hidden, table, targets = torch.randn(700, 8, requires_grad=True), torch.randn(50, 8), torch.randint(50, (700,))
    logp, entropy = log_probs(hidden, table, targets)
    (logp * torch.linspace(-1, 1, 700)).sum().backward()
    mine, hidden.grad = hidden.grad, None
    plain = torch.log_softmax(hidden @ table.t(), -1)
    chosen = plain.gather(1, targets[:, None]).squeeze(1)
    (chosen * torch.linspace(-1, 1, 700)).sum().backward()
    torch.testing.assert_close(logp, chosen)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1))
    torch.testing.assert_close(mine, hidden.grad)


def test_padded_completions_are_scored_as_they_are_alone(start: Path, tmp_path: Path) -> None:
    model = tiny_model(start, tmp_path)
    ids, mask = torch.randint(1, 200, (2, 9)), torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 0], [1] * 9])
    scored, _ = model.score(ids, mask, 5)
    hidden = model.llama(ids[0, 2:8], (6,))
    plain = torch.log_softmax(hidden[:-1] @ model.llama.embedding.t(), -1).gather(1, ids[0, 3:8, None]).squeeze(1)
    torch.testing.assert_close(scored[0, :4], plain[-4:])
    assert scored[0, 4] == 0


@pytest.mark.parametrize(
    "advantages", [(0.5, 0.0, -1.0, 0.0), (0.0, 0.0, 0.0, 2.0), (0.0,) * 4, (1.0, -1.0, 1.0, -1.0)]
)
def test_what_has_no_advantage_is_scored_without_a_gradient_and_changes_none(
    start: Path, tmp_path: Path, advantages: tuple[float, ...]
) -> None:
    model, weight = tiny_model(start, tmp_path), torch.tensor(advantages)
    ids, mask = torch.randint(1, 200, (4, 9)), torch.ones(4, 9, dtype=torch.long)

    def gradients(scores: Any, weight: Any) -> list[Any]:
        model.zero_grad()
        (scores[0].sum(1) * weight).sum().backward(retain_graph=True)
        return [parameter.grad for parameter in model.parameters()]

    all_rows, some_rows = model.score(ids, mask, 5), score_some(model, ids, mask, 5, weight != 0)
    torch.testing.assert_close(some_rows, all_rows)
    torch.testing.assert_close(gradients(some_rows, weight), gradients(all_rows, weight))
    taught = weight != 0 if weight.any() else torch.arange(4) == 0
    torch.testing.assert_close(gradients(some_rows, torch.ones(4)), gradients(all_rows, taught.float()))


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Schedule.CONSTANT, [0.01, 0.01, 0.01]),
        (Schedule.LINEAR, [0.01, 0.02 / 3, 0.01 / 3]),
        (Schedule.DECAY, [0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.005]),
    ],
)
def test_the_learning_rate_stays_or_falls_to_nothing_at_the_last_step(
    start: Path, tmp_path: Path, schedule: Schedule, rates: list[float]
) -> None:
    train(start, tmp_path, len(rates), speculate=False, schedule=schedule)
    assert [entry["learning_rate"] for entry in log(tmp_path)] == pytest.approx(rates)


@pytest.fixture(scope="module")
def arms(start: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    found: dict[bool, Any] = {}
    for speculate in (False, True):
        out = tmp_path_factory.mktemp(f"speculate-{speculate}")
        trainer, made, serving = train(start, out, 5, speculate=speculate)
        found[speculate] = (out, trainer, made, serving)
    return found


def test_the_first_steps_of_both_pipelines_are_the_same_rollouts_and_the_same_losses(arms: dict[bool, Any]) -> None:
    (plain_out, _, plain, _), (out, _, speculative, _) = arms[False], arms[True]
    assert len(plain) == len(speculative) == 5
    for step, (left, right) in enumerate(zip(plain, speculative, strict=True)):
        assert [differences(a, b) for a, b in zip(left, right, strict=True)] == [[]] * 8, step
    names = ("loss", "reward", "grad_norm", "entropy")
    assert [[entry[n] for n in names] for entry in log(plain_out)] == [[e[n] for n in names] for e in log(out)]
    assert any(entry["loss"] for entry in log(out))
    matched = [a for results in speculative for r in results for a in r.speculation.attempts if a.outcome == "match"]
    assert matched, "speculation was on"


def test_each_step_is_sampled_with_the_weights_of_the_step_before(arms: dict[bool, Any]) -> None:
    _, _, made, serving = arms[True]
    assert len(set(serving.opened)) == 5
    for step, results in enumerate(made):
        versions = {version for result in results for version in result.trajectory.versions}
        assert versions == {serving.opened[step]}


def test_ratios_are_against_the_recorded_logprobs(start: Path, tmp_path: Path) -> None:
    """On the first step the trainer's model is the one that sampled, so recorded and computed logprobs agree."""
    trainer, made, _ = train(start, tmp_path, 1, speculate=True)
    batch = trainer._buffered_inputs[0]
    assert torch.equal(batch["old_per_token_logps"], batch["sampling_per_token_logps"])
    recorded = [rounded(r.trajectory.logprobs, r.trajectory.mask) for results in made for r in results]
    mask = batch["completion_mask"] * batch["tool_mask"]
    used = [rounded(*row) for row in zip(batch["old_per_token_logps"].tolist(), mask.tolist(), strict=True)]
    assert len(used) == len(mask) > 0
    assert all(row in recorded for row in used)
    assert log(tmp_path)[0]["clip_ratio/region_mean"] == 0


def rounded(logprobs: Sequence[float], mask: Sequence[int]) -> list[float]:
    """Of what the policy sampled."""
    return [round(logprob, 5) for logprob, sampled in zip(logprobs, mask, strict=True) if sampled]


def test_a_finished_run_is_not_trained_further_and_takes_no_fewer_steps(start: Path, tmp_path: Path) -> None:
    train(start, tmp_path, 2, speculate=True, resumable=True)
    before = log(tmp_path)
    _, made, _ = train(start, tmp_path, 2, speculate=True, resumable=True)
    assert (log(tmp_path), made) == (before, [])
    with pytest.raises(ConfigError, match="--steps 1: the run has made 2"):
        train_policy(start, tmp_path, PolicySettings(steps=1), RolloutSettings(), print)


def test_a_version_outlives_the_next_one_for_whoever_is_just_opening_it(tmp_path: Path) -> None:
    versions = VersionFolder(tmp_path / "policy", "policy")
    model, save = tiny_model(start_adapter(tmp_path), tmp_path), saver(versions, 3)
    for step in range(6):
        save(SimpleNamespace(state=SimpleNamespace(global_step=step), model=model), tmp_path / "adapter")
    assert sorted(int(path.name) for path in versions.path.iterdir()) == [0, 3, 4, 5]


def test_what_is_wrong_is_said_before_the_folder_is_bound_to_it(start: Path, tmp_path: Path) -> None:
    wrong = [
        (tmp_path / "nothing", PolicySettings(), RolloutSettings(), "not a readable adapter"),
        (start, PolicySettings(families="csvv"), RolloutSettings(), "--families"),
        (start, PolicySettings(), RolloutSettings(world_model="nowhere"), "--world-model"),
    ]
    for adapter, settings, rollouts, said in wrong:
        with pytest.raises(ConfigError, match=said):
            train_policy(adapter, tmp_path / "out", settings, rollouts, print)
    assert not (tmp_path / "out").exists()


def test_killed_at_any_moment_the_run_has_every_step_and_every_turn_once(start: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    steps = 4
    train(start, whole, steps, speculate=True, resumable=True)
    for after in (1, 2):
        assert not run_until(after, start, killed, steps)
    assert run_until(99, start, killed, steps)
    assert [entry["step"] for entry in log(killed)] == list(range(1, steps + 1))
    names = ("step", "loss", "reward")
    assert [[e[n] for n in names] for e in log(killed)] == [[e[n] for n in names] for e in log(whole)]
    assert places(everything(killed / "transitions").transitions) == places(
        everything(whole / "transitions").transitions
    )
    seeds = [result.seed for _, result in RunFolder(killed, {}).results()]
    assert len(seeds) == len(set(seeds)) == steps * 8


def test_a_full_disk_is_a_sentence_and_the_checkpoint_before_it_is_gone_on_from(
    start: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = torch.save

    def fail_later(content: Any, file: Any, *more: Any, **options: Any) -> None:
        if "checkpoint-2" in str(file):
            Path(file).write_bytes(b"half")
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")
        saved(content, file, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", fail_later)
        with pytest.raises(ConfigError, match=r"checkpoint to .*trainer \(no room\): free some space"):
            train(start, tmp_path, 3, speculate=True, resumable=True)
    train(start, tmp_path, 3, speculate=True, resumable=True)
    names = ("step", "loss", "reward")
    assert [[e[n] for n in names] for e in log(tmp_path)] == [[e[n] for n in names] for e in log(undisturbed)]


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture(scope="module")
def undisturbed(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    train(start, out, 3, speculate=True, resumable=True)
    return out


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Log, "on_log"), (MarkComplete, "on_save"), (MergeAfterStep, "on_optimizer_step"), (VersionFolder, "publish")],
)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_whatever_was_the_last_thing_it_did_the_next_run_goes_on(
    owner: type, name: str, done: bool, start: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(owner, name), count(1)

    def do_and_die(*arguments: Any, **options: Any) -> Any:
        second = next(calls) == 2
        if second and not done:
            raise Killed
        result = real(*arguments, **options)
        if second:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, do_and_die)
        with pytest.raises(Killed):
            train(start, tmp_path, 3, speculate=True, resumable=True)
    train(start, tmp_path, 3, speculate=True, resumable=True)
    assert left(tmp_path) == left(undisturbed)


def left(out: Path) -> Any:
    """Figures of the steps, turns, rollouts, and versions with the digests of their factors."""
    figures = [[entry[n] for n in ("step", "loss", "reward", "grad_norm")] for entry in log(out)]
    turns = places(everything(out / "transitions").transitions)
    seeds = sorted(result.seed for _, result in RunFolder(out, {}).results())
    names = [json.loads(file.read_text())["name"] for file in sorted((out / "policy").glob("*/manifest.json"))]
    return figures, turns, seeds, names


def run_until(steps: int, start: Path, out: Path, total: int) -> bool:
    """Whether it finished before it was killed, in the middle of what comes after so many steps."""
    command = [sys.executable, "-m", "tests.train.tiny_policy", str(start), str(out), str(total)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TORCHDYNAMO_DISABLE": "1"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("finished"):
                return True
            steps -= line.startswith("step ")
            if not steps:
                time.sleep(0.1)
                process.send_signal(signal.SIGKILL)
                return False
    raise AssertionError("the trainer failed")
