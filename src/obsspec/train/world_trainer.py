# pyright: basic, reportMissingImports=false
"""The world-model trainer: goes through the transition log round by round, and publishes a version after each.

A round is all or nothing. Its checkpoint holds factors, optimiser, position in the log and random state together, and
is written before its version is published: killed at any moment, the trainer trains on every turn once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from obsspec.train.adapter import save_adapter
from obsspec.train.batches import collate, fill
from obsspec.train.checkpoint import load_checkpoint, save_checkpoint
from obsspec.train.encode import Example
from obsspec.train.evaluate import evaluate
from obsspec.train.figures import keep_lines, note
from obsspec.train.llama import Llama
from obsspec.train.replay import Replay, Round
from obsspec.train.update import make_optimizer, update
from obsspec.train.versions import VersionFolder
from obsspec.train.world_settings import WorldSettings

CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"


@dataclass(slots=True)
class Progress:
    """All of a checkpoint but factors and moments. `round` is also the number of the version it published."""

    round: int = 0
    updates: int = 0
    observations: int = 0
    tokens: int = 0
    step: int = 0  # the policy's, as far as its turns were trained on
    trained_s: float = 0.0
    position: dict[str, int] = field(default_factory=dict)
    random: tuple[Any, ...] | None = None


class WorldTrainer:
    """Trains `model` on the turns of `log`. Version 0 is what it begins with."""

    def __init__(
        self,
        model: Llama,
        log: Path,
        folder: Path,
        versions: VersionFolder,
        settings: WorldSettings,
        say: Callable[[str], None],
    ) -> None:
        self.progress = Progress()
        self._model, self._folder, self._versions, self._settings, self._say = model, folder, versions, settings, say
        self._optimizer = make_optimizer(model, settings.learning_rate)
        self._random = Random(settings.seed)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CHECKPOINT).exists():
            self._resume()
        keep_lines(folder / LOG, "round", self.progress.round)
        self._replay = Replay(log, settings.rules, settings.order, self._random, self.progress.position)
        self._publish()

    def run(self, stop: Callable[[], bool], *, follow: bool = True) -> None:
        """Until told to stop; without `follow`, until everything that is in the log was trained on."""
        settings = self._settings
        patience_s = settings.patience_s if follow else 0.0
        while not stop() and (news := self._replay.next_round(settings.round, patience_s, stop)) is not None:
            if not self._train(news, stop):
                return

    def _train(self, news: Round, stop: Callable[[], bool]) -> bool:
        """False when told to stop in the middle: then nothing of the round counts."""
        began, settings, losses = time.monotonic(), self._settings, list[float]()
        score = evaluate(self._model, news.fresh)
        for group in fill(_mixed(news, self._random), settings.batch_tokens):
            if stop():
                return False
            batch = collate(group, 0.0, 1.0)
            losses.append(update(self._model, self._optimizer, batch, settings.learning_rate, settings.clip))
        now = self.progress
        now.round += 1
        now.updates += len(losses)
        now.observations += score.observations
        now.tokens += sum(len(example.ids) for example in (*news.fresh, *news.again))
        now.step = max(now.step, news.step)
        now.trained_s += time.monotonic() - began
        now.position, now.random = dict(news.position), self._random.getstate()
        before = {"exact": score.exact, "nonempty": score.nonempty, "trivial": score.trivial}
        figures = {"loss": _mean(losses), "left_out": dict(news.left_out), "before": before}
        self._replay.make_durable()
        self._note(figures)  # first: a line that is ahead of the checkpoint goes when the run is resumed
        self._save()
        self._publish()
        self._say(
            f"world {now.round}  policy step {now.step}  loss {figures['loss']:.3f}  "
            f"exact before {score.exact:.1%}  {now.observations} observations"
        )
        return True

    def _publish(self) -> None:
        facts = {name: value for name, value in asdict(self.progress).items() if name != "random"}
        self._versions.publish(self.progress.round, lambda path: save_adapter(self._model, path), facts)
        keep_every = self._settings.keep_every  # who follows may just be opening the version before this one
        self._versions.drop(self.progress.round - 2, unless=lambda number: number % keep_every == 0)

    def _save(self) -> None:
        saved = {
            "progress": asdict(self.progress),
            "factors": {n: t for group in self._model.groups() for n, t in group.tensors().items()},
            "optimizer": self._optimizer.state_dict(),
        }
        save_checkpoint(self._folder / CHECKPOINT, saved)

    def _resume(self) -> None:
        saved = load_checkpoint(self._folder / CHECKPOINT, "progress", "factors", "optimizer")
        self.progress = Progress(**saved["progress"])
        if self.progress.random is not None:
            version, state, gauss = self.progress.random
            self._random.setstate((version, tuple(state), gauss))
        for group in self._model.groups():
            group.load(saved["factors"])
        self._model.merge()
        self._optimizer.load_state_dict(saved["optimizer"])
        self._say(f"going on after round {self.progress.round}")

    def _note(self, figures: dict[str, Any]) -> None:
        now = self.progress
        line = {"round": now.round, "step": now.step, "observations": now.observations, **figures}
        note(self._folder / LOG, line)


def _mixed(news: Round, random: Random) -> Iterable[Example]:
    """Only what comes again changes the order of what is new."""
    if not news.again:
        return news.fresh
    together = [*news.fresh, *news.again]
    random.shuffle(together)
    return together


def _mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))
