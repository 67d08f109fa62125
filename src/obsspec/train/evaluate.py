# pyright: basic, reportMissingImports=false
"""Teacher-forced measurement: would greedy decoding reproduce what was recorded, given the true history?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from obsspec.train.encode import Example, Role, Span
from obsspec.train.llama import Llama

_TOKENS = 4096  # packed into one pass


@dataclass(frozen=True, slots=True)
class Score:
    """Shares in 0..1. An observation or action is right when every one of its tokens is the most likely one.

    `trivial`: the share of observations that the guess "it succeeds silently" gets right; `nonempty` is
    measured on the others.
    """

    observations: int
    exact: float
    nonempty: float
    trivial: float
    actions: int
    actions_exact: float

    def __str__(self) -> str:
        return (
            f"observations {self.exact:.1%} exact of {self.observations} (non-empty {self.nonempty:.1%}, "
            f"always guessing no output {self.trivial:.1%}), actions {self.actions_exact:.1%} of {self.actions}"
        )

    def to_json(self) -> dict[str, float]:
        return asdict(self)


@torch.no_grad()
def evaluate(model: Llama, examples: Sequence[Example]) -> Score:
    results = [result for group in _groups(examples) for result in _check(model, group)]
    observed = [(span, right) for span, right in results if span.role is Role.OBSERVATION]
    acted = [right for span, right in results if span.role is Role.ACTION and span.trained]
    return Score(
        observations=len(observed),
        exact=_share(right for _, right in observed),
        nonempty=_share(right for span, right in observed if not span.trivial),
        trivial=_share(span.trivial for span, _ in observed),
        actions=len(acted),
        actions_exact=_share(acted),
    )


def _groups(examples: Sequence[Example]) -> Iterator[list[Example]]:
    group: list[Example] = []
    for example in examples:
        if group and sum(len(e.ids) for e in group) + len(example.ids) > _TOKENS:
            yield group
            group = []
        group.append(example)
    if group:
        yield group


def _check(model: Llama, group: list[Example]) -> Iterator[tuple[Span, bool]]:
    ids = torch.tensor([i for e in group for i in e.ids])
    hidden = model(ids, tuple(len(e.ids) for e in group))
    offset = 0
    for example in group:
        for span in example.spans:
            rows = slice(offset + span.start - 1, offset + span.stop - 1)
            guess = torch.mm(hidden[rows], model.unembedding.t()).argmax(-1)
            yield span, torch.equal(guess, ids[offset + span.start : offset + span.stop])
        offset += len(example.ids)


def _share(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
