# pyright: basic, reportMissingImports=false
"""Weighted cross entropy over a large vocabulary, computed a slice of rows at a time together with its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from obsspec.train.kernels import row_loss, softmax_times

_ROWS = 1024  # rows of logits that exist at a time


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, unembedding: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        share = (weights / weights.sum().clamp_min(1e-9)).unsqueeze(1)
        total = share.new_zeros(())
        gradient = torch.empty_like(hidden)
        for rows in (slice(i, i + _ROWS) for i in range(0, len(hidden), _ROWS)):
            logits = torch.mm(hidden[rows], unembedding.t())
            loss, norm = row_loss(logits, targets[rows])
            total += (share[rows] * loss).sum()
            slope = softmax_times(logits, norm, share[rows])
            chosen = (share[rows] * torch.expm1(-loss)).to(slope.dtype)
            slope[torch.arange(len(slope)), targets[rows]] = chosen.squeeze(1)
            gradient[rows] = torch.mm(slope, unembedding)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None


def cross_entropy(hidden: Tensor, unembedding: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean over rows of -log p(target) in nats.

    `hidden` [rows, width], `unembedding` [vocabulary, width] frozen, `targets` [rows], `weights` [rows] >= 0.
    """
    return _CrossEntropy.apply(hidden, unembedding, targets, weights)
