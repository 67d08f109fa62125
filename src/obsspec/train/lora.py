# pyright: basic, reportMissingImports=false
"""Low-rank adapters on fused linear layers.

The working weight is W + alpha/rank * B A, folded in float32 and rounded once: training sees the very weights that a
merged model has, and the forward pass is one matrix product. Only the gradients know of A and B.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn


class _Folded(torch.autograd.Function):
    """x W' with gradients for x and for the factors whose product is already inside W'."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor, group: LoraGroup) -> Tensor:
        ctx.save_for_backward(x)
        ctx.group = group
        return torch.mm(x, group.weight.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        (grad,), group = grads, ctx.group
        to_a = torch.mm(torch.mm(grad, group.wide_b).t(), x).float()
        to_b = torch.mm(torch.mm(x, group.scaled_a.t()).t(), grad).float()
        to_x = torch.mm(grad, group.weight) if ctx.needs_input_grad[0] else None
        return to_x, to_a, torch.cat(group.blocks(to_b), 1), None


class LoraGroup(nn.Module):
    """Linear layers that read the same input, as one matrix: the rows of all parts, one adapter for each part.

    `a` [parts * rank, in] holds the parts' A one below the other, `b` [rank, sum of outs] their transposed B
    side by side. The working copies hold until the next `merge`.
    """

    base: Tensor  # [sum of outs, in], float32, frozen
    weight: Tensor  # the same with the adapters folded in, in the working type
    scaled_a: Tensor  # scale * a, in the working type
    wide_b: Tensor  # [sum of outs, parts * rank]: scale * B of every part, block by block, in the working type

    def __init__(self, parts: Mapping[str, Tensor], rank: int, scale: float) -> None:
        super().__init__()
        self.names = tuple(parts)
        self.rank, self.scale = rank, scale
        ends = list(accumulate(len(w) for w in parts.values()))
        self._rows = [slice(end - len(w), end) for end, w in zip(ends, parts.values(), strict=True)]
        width = next(iter(parts.values())).shape[1]
        self.register_buffer("base", torch.cat(list(parts.values())), persistent=False)
        self.a = nn.Parameter(torch.empty(rank * len(parts), width).uniform_(-1, 1).mul_(width**-0.5))
        self.b = nn.Parameter(torch.zeros(rank, ends[-1]))

    def use(self, dtype: torch.dtype) -> None:
        """Compute in this type from now on; call `merge` before the next pass."""
        rows, low = len(self.base), len(self.a)
        self.register_buffer("weight", torch.empty_like(self.base, dtype=dtype), persistent=False)
        self.register_buffer("scaled_a", torch.empty_like(self.a, dtype=dtype), persistent=False)
        self.register_buffer("wide_b", torch.zeros(rows, low, dtype=dtype), persistent=False)

    @torch.no_grad()
    def merge(self) -> None:
        self.scaled_a.copy_(self.a * self.scale)
        for rows, a, block in zip(self._rows, self.a.split(self.rank), self.blocks(self.wide_b.t()), strict=True):
            b = self.b[:, rows]
            self.weight[rows] = torch.addmm(self.base[rows], b.t(), a, alpha=self.scale)
            block.copy_(b * self.scale)

    def blocks(self, wide: Tensor) -> list[Tensor]:
        """The diagonal blocks [rank, out] of a [parts * rank, sum of outs] matrix."""
        return [part[:, rows] for part, rows in zip(wide.split(self.rank), self._rows, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        return _Folded.apply(x, self.a, self.b, self)

    @torch.no_grad()
    def tensors(self) -> dict[str, Tensor]:
        """`{module}.lora_A` [rank, in] and `{module}.lora_B` [out, rank] of every part."""
        out: dict[str, Tensor] = {}
        for name, rows, a in zip(self.names, self._rows, self.a.split(self.rank), strict=True):
            out[f"{name}.lora_A"] = a.clone()
            out[f"{name}.lora_B"] = self.b[:, rows].t().contiguous()
        return out

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, rows, a in zip(self.names, self._rows, self.a.split(self.rank), strict=True):
            a.copy_(tensors[f"{name}.lora_A"])
            self.b[:, rows] = tensors[f"{name}.lora_B"].t()
