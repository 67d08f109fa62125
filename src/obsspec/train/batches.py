# pyright: basic, reportMissingImports=false
"""Which sessions come in which order, packed into batches: a function of the seed and of how far training is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from obsspec.render.terminal import TerminalRenderer
from obsspec.tasks.sessions import load_sessions
from obsspec.train.encode import Example, encode_all

_WORTH_A_ROUND = 200  # so many new sessions are a round of their own; with fewer, everything is seen again


@dataclass(frozen=True, slots=True)
class Position:
    """Round number, the range of sessions it covers, and batches of it already done. Saved with a checkpoint."""

    round: int = 0
    first: int = 0
    last: int = 0
    done: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Sessions one after the other. `targets` and `weights` belong to the rows of `rows`: token i predicts i + 1."""

    ids: Tensor
    lengths: tuple[int, ...]
    rows: Tensor
    targets: Tensor
    weights: Tensor


class Source:
    """The sessions of a file that may still be growing.

    A round covers what has come since the last one, or everything again when little is new.
    """

    def __init__(self, path: Path, renderer: TerminalRenderer, max_tokens: int) -> None:
        self._path, self._renderer, self._max_tokens = path, renderer, max_tokens
        self._examples: list[Example] = []
        self._lines = 0

    def examples(self, count: int | None = None) -> list[Example]:
        if count is None or count > len(self._examples):
            sessions = load_sessions(self._path)
            self._examples += encode_all(sessions[self._lines :], self._renderer, self._max_tokens)
            self._lines = len(sessions)
        return self._examples

    def next_round(self, before: Position) -> Position:
        count = len(self.examples())
        fresh = before.last if count - before.last >= _WORTH_A_ROUND or before.last == 0 else 0
        return Position(before.round + 1, fresh, count)


def pack(examples: Sequence[Example], position: Position, seed: int, tokens: int) -> Iterator[list[Example]]:
    """The batches of a round that are still to come, each about `tokens` long and at least one session."""
    chosen = list(examples[position.first : position.last])
    Random(f"{seed}/{position.round}").shuffle(chosen)
    yield from fill(chosen, tokens)[position.done :]


def fill(examples: Iterable[Example], tokens: int) -> list[list[Example]]:
    """Batches of examples in their order, each of at most `tokens` tokens, or of one example."""
    batches: list[list[Example]] = []
    room = 0
    for example in examples:
        if len(example.ids) > room:
            batches.append([])
            room = tokens
        batches[-1].append(example)
        room -= len(example.ids)
    return batches


def collate(examples: Sequence[Example], policy: float, world: float) -> Batch:
    ids = torch.tensor([i for e in examples for i in e.ids])
    weights = torch.tensor([w for e in examples for w in e.weights(policy, world)])
    targets = torch.nonzero(weights).squeeze(1)
    lengths = tuple(len(e.ids) for e in examples)
    return Batch(ids, lengths, targets - 1, ids[targets], weights[targets])
