"""The world-model trainer: trains on observation tokens and nothing else, on every turn once, wherever it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from obsspec.testing import run_virtual  # noqa: E402
from obsspec.train.batches import collate  # noqa: E402
from obsspec.train.replay import Replay  # noqa: E402
from obsspec.train.transition_log import TransitionWriter  # noqa: E402
from obsspec.train.transitions import FilterRules, examples, trainable  # noqa: E402
from obsspec.train.world import train_world  # noqa: E402
from obsspec.train.world_settings import Order, WorldSettings  # noqa: E402
from obsspec.train.world_trainer import WorldTrainer  # noqa: E402
from obsspec.values import ConfigError  # noqa: E402
from tests.models.test_merge import write_adapter  # noqa: E402
from tests.train.power import Power  # noqa: E402
from tests.train.test_transitions import collect, everything, jobs, write  # noqa: E402
from tests.train.world_process import tiny_world  # noqa: E402

ROOT = Path(__file__).parent.parent.parent


def never() -> bool:
    return False


def factors(trained: WorldTrainer) -> dict[str, Any]:
    return {name: t for group in trained._model.groups() for name, t in group.tensors().items()}


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_the_loss_is_on_observation_tokens_and_their_closing_token_one_by_one(tmp_path: Path) -> None:
    write(tmp_path, "a", jobs(8))
    transitions = [t for t in everything(tmp_path).transitions if trainable(t, FilterRules()) is None]
    made, _ = examples(transitions, FilterRules())
    for example in made:
        batch = collate([example], 0.0, 1.0)
        learnt = {int(row) + 1 for row in batch.rows}
        own = [t for t in transitions if example.ids[: len(t.ids)] == t.ids]
        wanted = {i for t in own for start, stop in t.targets for i in range(start, stop)}
        assert learnt == wanted
        assert batch.targets.tolist() == [example.ids[i] for i in sorted(wanted)]
        assert batch.weights.tolist() == [1.0] * len(wanted)


def test_an_observation_is_predicted_from_what_is_before_it(tmp_path: Path) -> None:
    """What comes after the last one changes nothing."""
    write(tmp_path / "log", "a", jobs(3))
    made, _ = examples(everything(tmp_path / "log").transitions, FilterRules())
    whole = collate(made[:1], 0.0, 1.0)
    last = max(span.stop for span in made[0].spans)
    shorter = whole.ids[:last]
    model = tiny_world(tmp_path / "log", tmp_path / "out")._model
    full = model(whole.ids, (len(whole.ids),))[whole.rows]
    cut = model(shorter, (last,))[whole.rows]
    torch.testing.assert_close(full, cut)


def test_it_learns_what_it_is_shown_and_publishes_each_round(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    for step in range(6):
        write(log, f"writer-{step}", jobs(10, step=step))
    trained = tiny_world(log, out)
    trained.run(never, follow=False)
    found = lines(out)
    assert [line["round"] for line in found] == list(range(1, trained.progress.round + 1))
    assert found[-1]["loss"] < 0.8 * found[0]["loss"]
    numbers = sorted(int(path.name) for path in (out / "versions").iterdir())
    assert numbers == list(range(trained.progress.round + 1))
    assert trained.progress.step == 5


def test_every_weight_is_trained_and_a_trainer_that_is_another_goes_on_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "a", jobs(12, step=0))
    whole, first = (tiny_world(log, tmp_path / name, full=True) for name in ("whole", "parts"))
    start = factors(whole)
    for trained in (whole, first):
        trained.run(never, follow=False)
    write(log, "b", jobs(24, step=1))
    whole.run(never, follow=False)
    second = tiny_world(log, tmp_path / "parts", full=True)
    second.run(never, follow=False)
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    assert lines(tmp_path / "whole")[-1]["loss"] < 0.8 * lines(tmp_path / "whole")[0]["loss"]
    for name, expected in factors(whole).items():
        assert torch.equal(factors(second)[name], expected), name
        assert not torch.equal(start[name], expected), name


def test_of_old_versions_only_every_so_many_are_kept(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, "a", jobs(24))
    trained = tiny_world(log, out, keep_every=3)
    trained.run(never, follow=False)
    last = trained.progress.round
    assert last >= 5
    kept = sorted(int(path.name) for path in (out / "versions").iterdir())
    assert kept == [number for number in range(last + 1) if number % 3 == 0 or number >= last - 1]


def test_every_turn_is_trained_on_once_also_when_the_log_grows_and_the_trainer_is_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, "a", jobs(6, step=0))
    whole, first = tiny_world(log, tmp_path / "whole"), tiny_world(log, tmp_path / "parts")
    whole.run(never, follow=False)
    first.run(never, follow=False)
    write(log, "b", jobs(6, step=1))
    whole.run(never, follow=False)
    second = tiny_world(log, tmp_path / "parts")
    second.run(never, follow=False)
    wanted = sum(len(t.targets) for t in everything(log).transitions if trainable(t, FilterRules()) is None)
    assert whole.progress.observations == second.progress.observations == wanted
    for name, expected in factors(whole).items():
        assert torch.equal(factors(second)[name], expected), name


def test_a_round_that_was_stopped_counts_for_nothing(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, "a", jobs(6))
    asked = iter([False, False, True, True])
    tiny_world(log, out).run(lambda: next(asked), follow=False)
    assert tiny_world(log, out).progress.round == 0
    assert not (out / "checkpoint.pt").exists()


@pytest.mark.parametrize("last", ["_note", "_save", "_publish"])
def test_whatever_was_the_last_thing_it_did_the_next_trainer_goes_on(
    last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, "a", jobs(12))
    done = getattr(WorldTrainer, last)

    def do_and_die(self: WorldTrainer, *arguments: Any) -> None:
        done(self, *arguments)
        if self.progress.round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(WorldTrainer, last, do_and_die)
        with pytest.raises(KeyboardInterrupt):
            tiny_world(log, out).run(never, follow=False)
    resumed = tiny_world(log, out)
    resumed.run(never, follow=False)
    whole = tiny_world(log, tmp_path / "whole")
    whole.run(never, follow=False)
    assert lines(out) == lines(tmp_path / "whole")
    assert resumed.progress.observations == whole.progress.observations
    versions = sorted(path.name for path in (out / "versions").iterdir())
    assert versions == sorted(path.name for path in (tmp_path / "whole" / "versions").iterdir())
    for name, expected in factors(whole).items():
        assert torch.equal(factors(resumed)[name], expected), name


def test_a_full_disk_is_a_sentence_and_the_checkpoint_before_it_is_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, "a", jobs(12))
    saved = torch.save

    def fail_later(content: Any, file: Any) -> None:
        if content["progress"]["round"] == 2:
            file.write(b"half")
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")
        saved(content, file)

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", fail_later)
        with pytest.raises(ConfigError, match=r"checkpoint\.pt \(no room\): free some space"):
            tiny_world(log, out).run(never, follow=False)
    resumed, whole = tiny_world(log, out), tiny_world(log, tmp_path / "whole")
    assert resumed.progress.round == 1
    for trained in (resumed, whole):
        trained.run(never, follow=False)
    assert lines(out) == lines(tmp_path / "whole")
    assert not list(out.glob("*.part"))


def test_after_a_power_failure_the_log_holds_what_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power, log, after = Power(monkeypatch), tmp_path / "log", tmp_path / "after"
    writer = TransitionWriter(log, "a")
    run_virtual(collect, writer, jobs(12))
    assert power.fail(log, tmp_path / "before") > 0, "nobody has forced it to disk yet"
    trained = tiny_world(log, tmp_path / "out")
    trained.run(never, follow=False)
    power.fail(log, after)
    resumed = tiny_world(after, tmp_path / "out")
    resumed.run(never, follow=False)
    assert resumed.progress.observations == trained.progress.observations > 0


@pytest.mark.parametrize("content", [{"settings": {}, "state": {}}, None])
def test_the_checkpoint_of_something_else_is_a_sentence(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "checkpoint.pt") if content else (tmp_path / "checkpoint.pt").write_bytes(b"text")
    with pytest.raises(ConfigError, match="no checkpoint of this command"):
        tiny_world(tmp_path / "log", tmp_path)


def test_what_is_wrong_is_said_before_the_folder_is_bound_to_it(tmp_path: Path) -> None:
    start, log, run = tmp_path / "start.safetensors", tmp_path / "log", tmp_path / "run"
    write_adapter(start, "model.layers.0.mlp.up_proj", 4, 8)
    write(log, "a", jobs(1))
    run.mkdir()
    (run / "rollouts.jsonl").write_text('{"arm": "step-0"}\n')
    wrong = [(tmp_path / "nothing", log), (start, run), (start, start), (start, tmp_path / "nothing")]
    for adapter, place in wrong:
        with pytest.raises(ConfigError, match=r"not a readable adapter|transition log: give the folder"):
            train_world(adapter, place, tmp_path / "out", WorldSettings(), print, follow=False)
    assert not (tmp_path / "out").exists()


def test_mixed_replay_adds_rollouts_of_before_and_only_those(tmp_path: Path) -> None:
    write(tmp_path, "a", jobs(12))
    replay, before, added = Replay(tmp_path, FilterRules(), Order.MIXED, Random(0)), set[tuple[int, ...]](), 0
    while (news := replay.next_round(5, 0.0, never)) is not None:
        assert {example.ids for example in news.again} <= before
        before |= {example.ids for example in news.fresh}
        added += len(news.again)
    assert added


def test_without_patience_a_round_takes_all_that_is_there_up_to_its_size(tmp_path: Path) -> None:
    """From many writers, too: what one of them lacks, another has."""
    for number, rollouts in enumerate((1, 1, 1, 9)):
        write(tmp_path, f"writer-{number}", jobs(rollouts, step=number))
    replay, sizes, steps = Replay(tmp_path, FilterRules(), Order.STEP, Random(0)), list[int](), list[int]()
    while (news := replay.next_round(8, 0.0, never)) is not None:
        sizes.append(sum(news.left_out.values()) + sum(len(example.spans) for example in news.fresh))
        steps.append(news.step)
    assert len(sizes) == -(-len(everything(tmp_path).transitions) // 8)
    assert steps == sorted(steps)


def test_mixed_replay_learns_from_more_and_counts_what_is_new(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, "a", jobs(12))
    trained = tiny_world(log, out, order=Order.MIXED)
    wanted = sum(len(t.targets) for t in everything(log).transitions if trainable(t, FilterRules()) is None)
    trained.run(never, follow=False)
    once = tiny_world(log, tmp_path / "step")
    once.run(never, follow=False)
    assert trained.progress.observations == once.progress.observations == wanted
    assert trained.progress.tokens > once.progress.tokens


@pytest.mark.timeout(600)
def test_killed_at_any_moment_it_trains_on_every_turn_once(tmp_path: Path) -> None:
    log, killed, whole = tmp_path / "log", tmp_path / "killed", tmp_path / "whole"
    for step in range(4):
        write(log, f"writer-{step}", jobs(12, step=step))
    reference = tiny_world(log, whole, order=Order.MIXED)
    reference.run(never, follow=False)
    random, kills = Random(5), 0
    while not run_until(random.randrange(4, 8), random.random() * 0.05, log, killed):
        kills += 1
    assert kills >= 2
    after = tiny_world(log, killed, order=Order.MIXED)
    assert [line["round"] for line in lines(killed)] == [line["round"] for line in lines(whole)]
    assert after.progress.observations == reference.progress.observations
    assert after.progress.position == reference.progress.position
    assert sorted(p.name for p in (killed / "versions").iterdir()) == sorted(
        p.name for p in (whole / "versions").iterdir()
    )
    for name, expected in factors(reference).items():
        assert torch.equal(factors(after)[name], expected), name


def run_until(rounds: int, then_s: float, log: Path, out: Path) -> bool:
    """Whether the trainer finished before it had done so many rounds, and then was killed."""
    command = [sys.executable, "-m", "tests.train.world_process", str(log), str(out)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "TORCHDYNAMO_DISABLE": "1"}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("finished"):
                return True
            rounds -= line.startswith("world ")
            if not rounds:
                time.sleep(then_s)
                process.send_signal(signal.SIGKILL)
                return False
    raise AssertionError("the trainer failed")
