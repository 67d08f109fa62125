# pyright: basic, reportMissingImports=false
"""The elementwise parts of a Llama and their gradients, each one pass over memory where torch can compile it.

On a CPU with fast matrix products these parts, not the products, take most of the time when run op by op.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def can_fuse() -> bool:
    """Whether there is a C++ compiler for torch to use."""
    return any(shutil.which(name) for name in ("g++", "clang++"))


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled at its first call; op by op on machines without a compiler."""
    return torch.compile(function, dynamic=True) if can_fuse() else function


@fused
def add_norm(x: Tensor, update: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + update in float32, its RMS norm in the update's type, and the norm's scale [rows, 1]."""
    total = x + update.float()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + epsilon)
    return total, (total * scale * weight).to(update.dtype), scale


@fused
def add_norm_back(to_total: Tensor, to_normed: Tensor, total: Tensor, scale: Tensor, weight: Tensor) -> Any:
    """The gradient of both summands, in float32 and in the working type."""
    grad = to_normed.float() * weight
    inner = (grad * total).mean(-1, keepdim=True) * scale * scale * scale
    out = to_total + grad * scale - total * inner
    return out, out.to(to_normed.dtype)


@fused
def swiglu(both: Tensor) -> Tensor:
    """silu(gate) * up of [rows, 2 * width]."""
    gate, up = both.float().chunk(2, -1)
    return (gate * torch.sigmoid(gate) * up).to(both.dtype)


@fused
def swiglu_back(both: Tensor, grad: Tensor) -> Tensor:
    gate, up = both.float().chunk(2, -1)
    grad = grad.float()
    share = torch.sigmoid(gate)
    to_gate = grad * up * share * (1 + gate * (1 - share))
    return torch.cat((to_gate, grad * gate * share), -1).to(both.dtype)


@fused
def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x [rows, heads, head], cos and sin [rows, 1, head / 2]. With -sin it is its own gradient."""
    low, high = x.float().chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(x.dtype)


@fused
def causal_softmax(scores: Tensor, factor: float) -> Tensor:
    """Softmax over the last axis of factor * scores [heads, n, n], each row seeing itself and what is before it."""
    position = torch.arange(scores.shape[-1])
    seen = position[None, :] <= position[:, None]
    return torch.where(seen, scores.float() * factor, -torch.inf).softmax(-1).to(scores.dtype)


@fused
def softmax_back(share: Tensor, grad: Tensor, factor: float) -> Tensor:
    share, out = share.float(), grad.float()
    return (share * (out - (share * out).sum(-1, keepdim=True)) * factor).to(grad.dtype)


@fused
def row_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log p(target) and log of the sum of exponentials of each row [rows, 1], in float32."""
    norm = torch.logsumexp(logits.float(), -1, keepdim=True)
    return norm - logits.gather(1, targets[:, None]).float(), norm


@fused
def softmax_times(logits: Tensor, norm: Tensor, weights: Tensor) -> Tensor:
    """weights [rows, 1] * softmax(logits)."""
    return (weights * (logits.float() - norm).exp()).to(logits.dtype)


@fused
def row_entropy(logits: Tensor, norm: Tensor) -> Tensor:
    """The entropy of each row's distribution in nats [rows]; `norm` as of `row_loss`."""
    logp = logits.float() - norm
    return -(logp.exp() * logp).sum(-1)
