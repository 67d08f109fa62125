# pyright: basic, reportMissingImports=false
"""Log probabilities of given tokens over a large vocabulary, a slice of rows at a time, and their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from obsspec.train.kernels import row_entropy, row_loss, softmax_times

_ROWS = 512  # rows of logits that exist at a time


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, unembedding: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logps, entropies, norms = [], [], []
        for rows in _slices(len(hidden)):
            logits = torch.mm(hidden[rows].to(unembedding.dtype), unembedding.t())
            loss, norm = row_loss(logits, targets[rows])
            logps.append(-loss.squeeze(1))
            entropies.append(row_entropy(logits, norm))
            norms.append(norm)
        ctx.save_for_backward(hidden, unembedding, targets, torch.cat(norms))
        entropy = torch.cat(entropies)
        ctx.mark_non_differentiable(entropy)
        return torch.cat(logps), entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        hidden, unembedding, targets, norms = ctx.saved_tensors
        out = torch.empty_like(hidden)
        for rows in _slices(len(hidden)):
            grad = grads[0][rows, None]
            logits = torch.mm(hidden[rows].to(unembedding.dtype), unembedding.t())
            slope = softmax_times(logits, norms[rows], -grad)
            slope[torch.arange(len(slope)), targets[rows]] += grad.squeeze(1).to(slope.dtype)
            out[rows] = torch.mm(slope, unembedding).to(out.dtype)
        return out, None, None


def log_probs(hidden: Tensor, unembedding: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log p(target) in nats, and the entropy of the distribution it is from (without gradient), both [rows].

    `hidden` [rows, width], `unembedding` [vocabulary, width] frozen, in whose type the logits are, `targets` [rows].
    """
    return _LogProbs.apply(hidden, unembedding, targets)


def _slices(count: int) -> list[slice]:
    return [slice(i, i + _ROWS) for i in range(0, count, _ROWS)]
