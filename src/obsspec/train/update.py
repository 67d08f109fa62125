# pyright: basic, reportMissingImports=false
"""One step of gradient descent on a batch of sessions."""

from __future__ import annotations

import torch

from obsspec.train.batches import Batch
from obsspec.train.llama import Llama
from obsspec.train.loss import cross_entropy


def make_optimizer(model: Llama, learning_rate: float) -> torch.optim.Optimizer:
    """Over the factors of the adapters."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


def update(model: Llama, optimizer: torch.optim.Optimizer, batch: Batch, rate: float, clip: float) -> float:
    """Weighted mean of the cross entropy before the step, in nats; the adapters are folded in after it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    hidden = model(batch.ids, batch.lengths)[batch.rows]
    loss = cross_entropy(hidden, model.unembedding, batch.targets, batch.weights)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    model.merge()
    return loss.item()
