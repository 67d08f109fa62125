"""Training learns, survives being stopped, and sees the sessions in the same order when it goes on."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from obsspec.tasks.sessions import save_sessions  # noqa: E402
from obsspec.train import run  # noqa: E402
from obsspec.train.batches import Position, Source, pack  # noqa: E402
from obsspec.train.encode import Example, Role, Span  # noqa: E402
from obsspec.train.evaluate import evaluate  # noqa: E402
from obsspec.train.llama import Llama  # noqa: E402
from obsspec.train.precision import Precision  # noqa: E402
from obsspec.train.run import Options  # noqa: E402
from obsspec.train.trainer import ADAPTER, CHECKPOINT, LOG, Settings, Trainer  # noqa: E402
from obsspec.values import ConfigError  # noqa: E402
from tests.train.test_encode import RENDERER, session  # noqa: E402
from tests.train.tiny import write_tiny  # noqa: E402


def examples(count: int) -> list[Example]:
    """Sessions whose observation repeats their action."""
    spans = (Span(1, 4, Role.ACTION), Span(5, 8, Role.OBSERVATION, trivial=True))
    return [Example((9, 20 + i, 40 + i, 8, 9, 20 + i, 40 + i, 8), spans) for i in range(count)]


class Fixed(Source):
    """Examples from memory."""

    def __init__(self, count: int) -> None:
        self._examples = examples(count)

    def examples(self, count: int | None = None) -> list[Example]:
        return self._examples


def trainer(folder: Path, lines: list[str], *, rank: int = 4, alpha: float = 8.0) -> Trainer:
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    model = Llama(write_tiny(folder / "tiny.gguf"), rank=rank, alpha=alpha, dtype=torch.float32)
    settings = Settings(minutes=1e6, learning_rate=0.02, batch_tokens=24, warmup_steps=1)
    return Trainer(model, Fixed(6), examples(2), folder, settings, lines.append)


def stop_at(trained: Trainer, step: int):
    return lambda: trained.state.step >= step


def factors(trained: Trainer) -> dict[str, torch.Tensor]:
    return {name: t for group in trained._model.groups() for name, t in group.tensors().items()}


def test_the_loss_falls_and_the_files_are_there(tmp_path: Path) -> None:
    lines: list[str] = []
    trained = trainer(tmp_path / "run", lines)
    trained.run(stop_at(trained, 60))
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    assert losses[-1] < 0.7 * losses[0]  # moving averages
    assert (tmp_path / "run" / ADAPTER).exists()
    assert (tmp_path / "run" / CHECKPOINT).exists()
    assert "tokens/s" in lines[0]


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", [])
    whole.run(stop_at(whole, 7))
    first = trainer(tmp_path / "parts", [])
    first.run(stop_at(first, 4))
    second = trainer(tmp_path / "parts", [])
    second.run(stop_at(second, 7))
    assert second.state.position == whole.state.position
    for name, expected in factors(whole).items():
        # the learning rate depends on the time trained, which is not the same to the last microsecond
        torch.testing.assert_close(factors(second)[name], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("stopped", [True, False])
def test_whether_the_time_was_used_up_is_told(stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(run, "base_model_path", lambda: write_tiny(tmp_path / "tiny.gguf"))
    monkeypatch.setattr(run, "_source", lambda path: Fixed(6))
    options = Options(tmp_path, tmp_path / "run", tmp_path, rank=4, alpha=8.0, precision=Precision.FLOAT32)
    settings = Settings(minutes=1e6 if stopped else 1e-6, batch_tokens=24)
    assert run.train(options, settings, interrupts_at("loss") if stopped else print) is not stopped


def interrupts_at(word: str) -> Callable[[str], None]:
    """Presses Ctrl-C when this is reported."""

    def report(line: str) -> None:
        if word in line:
            signal.raise_signal(signal.SIGINT)

    return report


def test_a_folder_that_was_begun_with_other_adapters_is_refused(tmp_path: Path) -> None:
    first = trainer(tmp_path / "run", [])
    first.run(stop_at(first, 2))
    for changes, said in (({"rank": 2}, "rank=4, now 2"), ({"alpha": 4.0}, r"alpha=8\.0, now 4")):
        with pytest.raises(ConfigError, match=said):
            trainer(tmp_path / "run", [], **changes).run(lambda: True)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    begun = trainer(tmp_path / "run", [])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can not use the folder"):
        Trainer(begun._model, Fixed(6), [], tmp_path / "file", begun._settings, print)


@pytest.mark.parametrize(
    "wrong", [{"minutes": 0}, {"minutes": 1, "learning_rate": -1}, {"minutes": 1, "batch_tokens": 0}]
)
def test_numbers_that_can_not_be_are_a_sentence(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"--{list(wrong)[-1].replace('_', '-')} must be"):
        Settings(**wrong)
    with pytest.raises(ConfigError, match="--rank must be at least 1, got 0"):
        Options(Path(), Path(), Path(), rank=0)


def test_a_round_is_shuffled_by_its_number_and_resumes_in_the_middle() -> None:
    everything = examples(6)
    whole = list(pack(everything, Position(1, 0, 6, 0), 0, 16))
    assert list(pack(everything, Position(1, 0, 6, 2), 0, 16)) == whole[2:]
    assert list(pack(everything, Position(2, 0, 6, 0), 0, 16)) != whole
    assert sorted(e.ids for batch in whole for e in batch) == sorted(e.ids for e in everything)
    assert all(len(batch) == 2 for batch in whole)


def test_sessions_that_come_later_are_a_round_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    save_sessions(path, [session()] * 3)
    source = Source(path, RENDERER, 1024)
    first = source.next_round(Position())
    again = source.next_round(first)
    save_sessions(path, [session()] * 203)
    fresh = source.next_round(again)
    assert (first, again, fresh) == (Position(1, 0, 3), Position(2, 0, 3), Position(3, 3, 203))


def test_the_score_counts_whole_spans(tmp_path: Path) -> None:
    model = Llama(write_tiny(tmp_path / "tiny.gguf"), rank=1, alpha=1.0, dtype=torch.float32)
    ids = [5]
    for _ in range(6):
        hidden = model(torch.tensor(ids), (len(ids),))
        ids.append(int((hidden[-1] @ model.unembedding.t()).argmax()))
    spans = (Span(1, 3, Role.ACTION), Span(3, 5, Role.OBSERVATION, trivial=True), Span(5, 7, Role.OBSERVATION))
    wrong = (*ids[:6], ids[6] + 1)
    score = evaluate(model, [Example(tuple(ids), spans), Example(wrong, spans)])
    assert (score.observations, score.actions) == (4, 2)
    assert (score.exact, score.nonempty, score.trivial, score.actions_exact) == (0.75, 0.5, 0.5, 1.0)
