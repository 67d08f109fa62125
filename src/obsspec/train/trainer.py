# pyright: basic, reportMissingImports=false
"""The training loop: within a time budget, interruptible at every step, resumable from its last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from obsspec.train.adapter import save_adapter
from obsspec.train.batches import Batch, Position, Source, collate, pack
from obsspec.train.checkpoint import load_checkpoint, save_checkpoint
from obsspec.train.checks import at_least, positive
from obsspec.train.encode import Example
from obsspec.train.evaluate import Score, evaluate
from obsspec.train.figures import keep_lines, note
from obsspec.train.llama import Llama
from obsspec.train.update import make_optimizer, update
from obsspec.values import ConfigError

CHECKPOINT, ADAPTER, LOG = "checkpoint.pt", "adapter.safetensors", "log.jsonl"


@dataclass(frozen=True, slots=True)
class Settings:
    """`minutes` is training time, evaluations and saving not counted; the learning rate falls linearly over it."""

    minutes: float
    learning_rate: float = 1e-3
    policy_weight: float = 1.0
    world_weight: float = 1.0
    batch_tokens: int = 1024
    warmup_steps: int = 30
    clip: float = 1.0
    seed: int = 0
    save_every_s: float = 180.0
    evaluate_every_s: float = 600.0

    def __post_init__(self) -> None:
        positive(self, "minutes", "learning_rate")
        at_least(self, policy_weight=0, world_weight=0, batch_tokens=1)

    def rate(self, step: int, trained_s: float) -> float:
        left = max(0.0, 1.0 - trained_s / (self.minutes * 60))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup_steps) * left


@dataclass(slots=True)
class State:
    """How far training is. Everything but the factors and the optimiser's moments."""

    position: Position
    step: int = 0
    tokens: int = 0
    trained_s: float = 0.0
    loss: float = 0.0  # moving average over some 50 steps
    saved_s: float = 0.0
    evaluated_s: float = 0.0


class Trainer:
    """Trains the adapters of `model` on `source` and leaves checkpoint, adapter and log in `folder`.

    `report` is called with one line of text now and then; `stop` is asked before every step.
    """

    def __init__(
        self,
        model: Llama,
        source: Source,
        held_out: list[Example],
        folder: Path,
        settings: Settings,
        report: Callable[[str], None],
    ) -> None:
        self.state = State(Position())
        self._model, self._source, self._held_out = model, source, held_out
        self._folder, self._settings, self._report = folder, settings, report
        self._optimizer = make_optimizer(model, settings.learning_rate)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"can not use the folder {folder}: {error.strerror}") from None

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Train until the time is used up or `stop()`; the adapter and a checkpoint are saved either way."""
        if (self._folder / CHECKPOINT).exists():
            self._resume()
        keep_lines(self._folder / LOG, "step", self.state.step)
        batches = self._batches()
        while self.state.trained_s < self._settings.minutes * 60 and not stop():
            self._step(next(batches))
            self._now_and_then()
        self._save()
        if not stop():
            self._evaluate()

    def _batches(self) -> Iterator[Batch]:
        settings, state = self._settings, self.state
        while True:
            examples = self._source.examples(state.position.last)
            for group in pack(examples, state.position, settings.seed, settings.batch_tokens):
                yield collate(group, settings.policy_weight, settings.world_weight)
            state.position = self._source.next_round(state.position)
            if state.position.last == 0:
                raise ConfigError("the session file holds no session to train on: record some first")

    def _step(self, batch: Batch) -> None:
        begin, state, settings = time.monotonic(), self.state, self._settings
        rate = settings.rate(state.step, state.trained_s)
        loss = update(self._model, self._optimizer, batch, rate, settings.clip)
        state.loss += (loss - state.loss) / min(state.step + 1, 50)
        state.step += 1
        state.tokens += len(batch.ids)
        p = state.position
        state.position = Position(p.round, p.first, p.last, p.done + 1)
        state.trained_s += time.monotonic() - begin

    def _now_and_then(self) -> None:
        state, settings = self.state, self._settings
        if state.step % 20 == 0:
            self._log(state.step, {"loss": state.loss, "tokens": state.tokens, "trained_s": state.trained_s})
            self._report(self._line())
        if state.trained_s - state.saved_s >= settings.save_every_s:
            self._save()
        if state.trained_s - state.evaluated_s >= settings.evaluate_every_s:
            state.evaluated_s = state.trained_s
            self._evaluate()

    def _line(self) -> str:
        state = self.state
        return (
            f"step {state.step}  loss {state.loss:.3f}  {state.trained_s / 60:.1f} of {self._settings.minutes:g} min  "
            f"{state.tokens} tokens  {state.tokens / state.trained_s:.0f} tokens/s  "
            f"round {state.position.round} ({state.position.last} sessions)"
        )

    def _evaluate(self) -> Score:
        score = evaluate(self._model, self._held_out)
        self._log(self.state.step, score.to_json())
        self._report(f"step {self.state.step}  {score}")
        return score

    def _log(self, step: int, values: dict[str, float]) -> None:
        note(self._folder / LOG, {"step": step, **values})

    def _save(self) -> None:
        self.state.saved_s = self.state.trained_s
        save_adapter(self._model, self._folder / ADAPTER)
        saved: dict[str, Any] = {
            "settings": self._facts(),
            "state": asdict(self.state),
            "factors": {n: t for group in self._model.groups() for n, t in group.tensors().items()},
            "optimizer": self._optimizer.state_dict(),
        }
        save_checkpoint(self._folder / CHECKPOINT, saved)

    def _facts(self) -> dict[str, Any]:
        """What a folder must agree on to be gone on with."""
        return {**asdict(self._settings), "rank": self._model.rank, "alpha": self._model.alpha}

    def _resume(self) -> None:
        saved = load_checkpoint(self._folder / CHECKPOINT, "settings", "state", "factors", "optimizer")
        now = self._facts()
        changed = [name for name in now if saved["settings"].get(name, now[name]) != now[name]]
        if changed:
            raise ConfigError(
                f"{self._folder} was begun with {changed[0]}={saved['settings'].get(changed[0])}, "
                f"now {now[changed[0]]}: use the same options to go on, or another folder"
            )
        values = saved["state"]
        self.state = State(Position(**values.pop("position")), **values)
        for group in self._model.groups():
            group.load(saved["factors"])
        self._model.merge()
        self._optimizer.load_state_dict(saved["optimizer"])
        self._report(f"resumed at step {self.state.step}")
