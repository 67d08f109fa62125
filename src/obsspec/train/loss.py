"""Weighted cross entropy over a large vocabulary, computed a slice of rows at a time together with its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ROWS = 256  # rows of logits that exist at a time: 256 x 49152 x 4 bytes = 50 MB


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, unembedding: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        total = hidden.new_zeros((), dtype=torch.float32)
        gradient = torch.empty_like(hidden)
        share = weights / weights.sum().clamp_min(1e-9)
        for rows in (slice(i, i + _ROWS) for i in range(0, len(hidden), _ROWS)):
            logits = torch.mm(hidden[rows], unembedding.t()).float()
            peak = logits.amax(-1, keepdim=True)
            chosen = logits.gather(1, targets[rows, None])
            logits.sub_(peak).exp_()
            norm = logits.sum(-1, keepdim=True)
            total += (share[rows, None] * (norm.log() + peak - chosen)).sum()
            logits.mul_(share[rows, None] / norm)
            logits.scatter_add_(1, targets[rows, None], -share[rows, None])
            torch.mm(logits.to(hidden.dtype), unembedding, out=gradient[rows])
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None, None, None


def cross_entropy(hidden: Tensor, unembedding: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean over rows of -log p(target) in nats.

    `hidden` [rows, width], `unembedding` [vocabulary, width] frozen, `targets` [rows], `weights` [rows] >= 0.
    """
    return _CrossEntropy.apply(hidden, unembedding, targets, weights)
