# pyright: basic, reportMissingImports=false
"""A Llama in plain torch for training: sessions packed without padding, matrix products in bfloat16.

One row per token: activations are [tokens, width], several sessions one after the other, and attention runs within
each session. Weights come from the base model's GGUF file in the Hugging Face layout; no hub is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from obsspec.models.gguf_metadata import read_metadata
from obsspec.models.weights import GgufWeights
from obsspec.train import kernels
from obsspec.train.lora import LoraGroup
from obsspec.train.whole import WholeGroup

MakeGroup = Callable[[Mapping[str, Tensor]], nn.Module]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama; `head` is the width of one attention head."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    epsilon: float
    rope_base: float

    @staticmethod
    def read(path: Path) -> Shape:
        fields = read_metadata(path)
        width, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
        return Shape(
            layers=fields["llama.block_count"],
            width=width,
            heads=heads,
            kv_heads=fields["llama.attention.head_count_kv"],
            head=width // heads,
            epsilon=fields["llama.attention.layer_norm_rms_epsilon"],
            rope_base=fields["llama.rope.freq_base"],
        )


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the sessions of a packed batch lie, and the rotary factors of every row."""

    lengths: tuple[int, ...]
    cos: Tensor  # [tokens, 1, head / 2]
    sin: Tensor

    @staticmethod
    def of(lengths: tuple[int, ...], shape: Shape) -> Packing:
        position = torch.cat([torch.arange(n) for n in lengths]).float()
        half = shape.head // 2
        angle = torch.outer(position, shape.rope_base ** (-torch.arange(half).float() / half)).unsqueeze(1)
        return Packing(lengths, angle.cos(), angle.sin())

    def slices(self) -> list[slice]:
        ends = list(accumulate(self.lengths))
        return [slice(end - n, end) for end, n in zip(ends, self.lengths, strict=True)]


class _AddNorm(torch.autograd.Function):
    """(x + update, RMS norm of that), with a frozen weight: residual stream in float32, the rest in `update`'s type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, update: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        total, normed, scale = kernels.add_norm(x, update, weight, epsilon)
        ctx.save_for_backward(total, scale, weight)
        return total, normed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        total, scale, weight = ctx.saved_tensors
        to_x, to_update = kernels.add_norm_back(grads[0], grads[1], total, scale, weight)
        return to_x, to_update, None, None


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        return kernels.swiglu(both)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return kernels.swiglu_back(ctx.saved_tensors[0], grads[0])


class _Attend(torch.autograd.Function):
    """Causal attention within each session: [tokens, (heads + 2 kv_heads) * head] to [tokens, heads * head].

    Spelled out: at the few hundred tokens of a session it is several times faster than the backward pass of
    torch's fused kernel.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, packing: Packing, shape: Shape) -> Tensor:
        heads = _by_head(qkv, packing, shape)
        out = heads.new_empty(shape.heads, len(qkv), shape.head)
        shares: list[Tensor] = []
        for rows in packing.slices():
            q, k, v = _session(heads, rows, shape)
            scores = torch.bmm(q, k.transpose(1, 2)).view(shape.heads, k.shape[1], k.shape[1])
            share = kernels.causal_softmax(scores, shape.head**-0.5)
            out[:, rows] = torch.bmm(share.view(shape.kv_heads, -1, k.shape[1]), v).view(shape.heads, -1, shape.head)
            shares.append(share)
        ctx.save_for_backward(heads, *shares)
        ctx.packing, ctx.shape = packing, shape
        return out.transpose(0, 1).reshape(len(qkv), -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        heads, *shares = ctx.saved_tensors
        packing, shape = ctx.packing, ctx.shape
        to_out = grads[0].view(len(grads[0]), shape.heads, shape.head).transpose(0, 1)
        to_heads = torch.empty_like(heads)
        to_q, to_k, to_v = to_heads.split((shape.heads, shape.kv_heads, shape.kv_heads))
        for rows, share in zip(packing.slices(), shares, strict=True):
            q, k, v = _session(heads, rows, shape)
            grad = to_out[:, rows].reshape(q.shape)
            flat = share.view(shape.kv_heads, -1, k.shape[1])
            to_v[:, rows] = torch.bmm(flat.transpose(1, 2), grad)
            to_share = torch.bmm(grad, v.transpose(1, 2)).view(share.shape)
            to_scores = kernels.softmax_back(share, to_share, shape.head**-0.5).view(flat.shape)
            to_q[:, rows] = torch.bmm(to_scores, k).view(shape.heads, -1, shape.head)
            to_k[:, rows] = torch.bmm(to_scores.transpose(1, 2), q)
        return _by_token(to_heads, packing, shape), None, None


def _by_head(qkv: Tensor, packing: Packing, shape: Shape) -> Tensor:
    """[heads + 2 kv_heads, tokens, head], queries and keys rotated."""
    parts = qkv.view(len(qkv), -1, shape.head)
    turning = shape.heads + shape.kv_heads
    out = qkv.new_empty(parts.shape[1], len(qkv), shape.head)
    out[:turning] = kernels.rotate(parts[:, :turning], packing.cos, packing.sin).transpose(0, 1)
    out[turning:] = parts[:, turning:].transpose(0, 1)
    return out


def _by_token(heads: Tensor, packing: Packing, shape: Shape) -> Tensor:
    """The gradient of `_by_head`."""
    turning = shape.heads + shape.kv_heads
    parts = heads.transpose(0, 1).contiguous()
    parts[:, :turning] = kernels.rotate(parts[:, :turning], packing.cos, -packing.sin)
    return parts.view(len(parts), -1)


def _session(heads: Tensor, rows: slice, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [kv_heads, group * n, head], keys and values [kv_heads, n, head] of one session."""
    q, k, v = heads[:, rows].split((shape.heads, shape.kv_heads, shape.kv_heads))
    return q.reshape(shape.kv_heads, -1, shape.head), k, v


def _tensor(weights: GgufWeights, name: str) -> Tensor:
    return torch.tensor(weights[name])


class Layer(nn.Module):
    def __init__(self, number: int, weights: GgufWeights, shape: Shape, make: MakeGroup) -> None:
        super().__init__()
        self.shape = shape
        prefix = f"model.layers.{number}."
        self.attention_norm = nn.Buffer(_tensor(weights, f"{prefix}input_layernorm.weight"))
        self.mlp_norm = nn.Buffer(_tensor(weights, f"{prefix}post_attention_layernorm.weight"))

        def group(*modules: str) -> nn.Module:
            names = [prefix + module for module in modules]
            return make({name: _tensor(weights, f"{name}.weight") for name in names})

        self.qkv = group("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        self.out = group("self_attn.o_proj")
        self.gate_up = group("mlp.gate_proj", "mlp.up_proj")
        self.down = group("mlp.down_proj")

    def forward(self, x: Tensor, update: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """The residual stream and what is still to be added to it, before and after."""
        epsilon = self.shape.epsilon
        x, normed = _AddNorm.apply(x, update, self.attention_norm, epsilon)
        update = self.out(_Attend.apply(self.qkv(normed), packing, self.shape))
        x, normed = _AddNorm.apply(x, update, self.mlp_norm, epsilon)
        return x, self.down(_SwiGlu.apply(self.gate_up(normed)))


class Llama(nn.Module):
    """The base model with all linear layers trainable: by adapters of this rank, or with rank 0 every weight of them.

    Embedding and output are one frozen matrix, and norms are frozen.
    """

    def __init__(self, path: Path, *, rank: int, alpha: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.rank, self.alpha = rank, alpha
        self.shape = Shape.read(path)
        weights = GgufWeights(path)
        self.dtype = dtype
        make = partial(LoraGroup, rank=rank, scale=alpha / rank) if rank else WholeGroup
        self.embedding = nn.Buffer(_tensor(weights, "model.embed_tokens.weight"))
        self.unembedding = nn.Buffer(self.embedding.to(dtype))
        self.norm = nn.Buffer(_tensor(weights, "model.norm.weight"))
        self.layers = nn.ModuleList(Layer(i, weights, self.shape, make) for i in range(self.shape.layers))
        for group in self.groups():
            group.use(dtype)
        self.merge()

    def groups(self) -> list[LoraGroup | WholeGroup]:
        return [module for module in self.modules() if isinstance(module, LoraGroup | WholeGroup)]

    def merge(self) -> None:
        """Bring the working weights up to date: once before the first pass and after every update."""
        for group in self.groups():
            group.merge()

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Final hidden states [tokens, width] of sessions of these lengths, concatenated in `ids` [tokens]."""
        x = self.embedding[ids]
        update = torch.zeros_like(x, dtype=self.dtype)
        packing = Packing.of(lengths, self.shape)
        for layer in self.layers:
            x, update = layer(x, update, packing)
        return _AddNorm.apply(x, update, self.norm, self.shape.epsilon)[1]
