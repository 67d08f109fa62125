"""Low-rank adapters on fused linear layers, and the adapter file.

The working weight is W + alpha/rank * B A, folded in float32 and rounded once: training sees the very weights that a
merged model has, and the forward pass is one matrix product. Only the gradients know of A and B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class _Folded(torch.autograd.Function):
    """x W' with gradients for x and for the factors whose product is already inside W'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, weight: Tensor, scale: float, *bs: Tensor) -> Tensor:
        ctx.save_for_backward(x, a, weight, *bs)
        ctx.scale = scale
        return torch.mm(x, weight.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, a, weight, *bs = ctx.saved_tensors
        grad = grads[0].to(x.dtype)
        low = torch.mm(x, a.to(x.dtype).t()).split(bs[0].shape[1], 1)
        parts = grad.split([len(b) for b in bs], 1)
        grad_bs = [torch.mm(g.t(), u).float().mul_(ctx.scale) for g, u in zip(parts, low, strict=True)]
        back = torch.cat([torch.mm(g, b.to(x.dtype)) for g, b in zip(parts, bs, strict=True)], 1)
        grad_a = torch.mm(back.t(), x).float().mul_(ctx.scale)
        grad_x = torch.mm(grad, weight) if ctx.needs_input_grad[0] else None
        return (grad_x, grad_a, None, None, *grad_bs)


class LoraGroup(nn.Module):
    """Linear layers that read the same input, as one matrix: rows of all parts stacked, one adapter for each part."""

    base: Tensor  # [sum of outs, in], float32, frozen
    weight: Tensor  # the same with the adapters folded in, in the working type

    def __init__(self, parts: Mapping[str, Tensor], rank: int, scale: float) -> None:
        super().__init__()
        self.names = tuple(parts)
        self.rank, self.scale = rank, scale
        width = next(iter(parts.values())).shape[1]
        self.register_buffer("base", torch.cat(list(parts.values())), persistent=False)
        self.a = nn.Parameter(torch.empty(rank * len(parts), width).uniform_(-1, 1).mul_(width**-0.5))
        self.bs = nn.ParameterList(torch.zeros(len(w), rank) for w in parts.values())
        self.dtype = torch.float32

    def use(self, dtype: torch.dtype) -> None:
        """Compute in this type from now on; call `merge` before the next pass."""
        self.dtype = dtype
        self.register_buffer("weight", self.base.to(dtype), persistent=False)

    @torch.no_grad()
    def merge(self) -> None:
        row = 0
        for number, b in enumerate(self.bs):
            a = self.a[number * self.rank : (number + 1) * self.rank]
            rows = slice(row, row + len(b))
            self.weight[rows] = torch.addmm(self.base[rows], b, a, alpha=self.scale)
            row += len(b)

    def forward(self, x: Tensor) -> Tensor:
        return _Folded.apply(x, self.a, self.weight, self.scale, *self.bs)

    def tensors(self) -> dict[str, Tensor]:
        """`{module}.lora_A` [rank, in] and `{module}.lora_B` [out, rank] of every part."""
        factors = zip(self.names, self.a.detach().split(self.rank), self.bs, strict=True)
        return {
            key: t
            for name, a, b in factors
            for key, t in ((f"{name}.lora_A", a), (f"{name}.lora_B", b.detach()))
        }

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, a, b in zip(self.names, self.a.split(self.rank), self.bs, strict=True):
            a.copy_(tensors[f"{name}.lora_A"])
            b.copy_(tensors[f"{name}.lora_B"])
