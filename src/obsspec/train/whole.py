# pyright: basic, reportMissingImports=false
"""Fused linear layers of which every weight is trained, beside those with low-rank adapters (`obsspec.train.lora`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class _Rounded(torch.autograd.Function):
    """x W' where W' is the master in the working type; the gradient goes to the master."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, master: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.mm(x, weight.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, weight = ctx.saved_tensors
        to_x = torch.mm(grads[0], weight) if ctx.needs_input_grad[0] else None
        return to_x, torch.mm(grads[0].t(), x).float(), None


class WholeGroup(nn.Module):
    """Linear layers that read the same input, as one matrix: the rows of all parts.

    `master` [sum of outs, in] is trained in float32. The working copy holds until the next `merge`.
    """

    weight: Tensor  # the master in the working type

    def __init__(self, parts: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = tuple(parts)
        self._sizes = [len(part) for part in parts.values()]
        self.master = nn.Parameter(torch.cat(list(parts.values())))

    def use(self, dtype: torch.dtype) -> None:
        """Compute in this type from now on; call `merge` before the next pass."""
        self.register_buffer("weight", torch.empty_like(self.master, dtype=dtype, requires_grad=False), False)

    @torch.no_grad()
    def merge(self) -> None:
        self.weight.copy_(self.master)

    def forward(self, x: Tensor) -> Tensor:
        return _Rounded.apply(x, self.master, self.weight)

    @torch.no_grad()
    def tensors(self) -> dict[str, Tensor]:
        """`{module}.weight` [out, in] of every part."""
        parts = self.master.split(self._sizes)
        return {f"{name}.weight": part.clone() for name, part in zip(self.names, parts, strict=True)}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, part in zip(self.names, self.master.split(self._sizes), strict=True):
            part.copy_(tensors[f"{name}.weight"])
