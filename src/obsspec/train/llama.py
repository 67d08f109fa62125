"""A Llama in plain torch for training adapters: sessions packed without padding, matrix products in bfloat16.

One row per token: activations are [tokens, width], several sessions one after the other, and attention runs within
each session. Weights come from the base model's GGUF file in the Hugging Face layout; no hub is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from obsspec.models.gguf_metadata import read_metadata
from obsspec.train.lora import LoraGroup

_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


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


class GgufWeights:
    """The tensors of a GGUF file, dequantised to float32, queries and keys in the Hugging Face row order."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._tensors: dict[str, Any] = {t.name: t for t in gguf.GGUFReader(path).tensors}
        self._shape = shape

    def plain(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(np.array(values, dtype=np.float32))

    def linear(self, layer: int, module: str) -> Tensor:
        weight = self.plain(f"blk.{layer}.{_GGUF_NAMES[module]}.weight")
        heads = {"self_attn.q_proj": self._shape.heads, "self_attn.k_proj": self._shape.kv_heads}.get(module)
        return weight if heads is None else _unpermute(weight, heads)


def _unpermute(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp interleaves the two halves of each head's rotary pairs; this undoes it."""
    rows, width = weight.shape
    return weight.view(heads, rows // heads // 2, 2, width).transpose(1, 2).reshape(rows, width).contiguous()


class _RmsNorm(torch.autograd.Function):
    """x / rms(x) * weight, with a frozen weight; float32 in, `dtype` out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, scale, weight)
        return (x * scale).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        x, scale, weight = ctx.saved_tensors
        grad = grads[0].float().mul_(weight)
        inner = (grad * x).mean(-1, keepdim=True).mul_(scale.pow(3))
        return grad.mul_(scale).addcmul_(x, inner, value=-1), None, None, None


class _SwiGlu(torch.autograd.Function):
    """silu(gate) * up of one [tokens, 2 * width] matrix."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, -1)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        gate, up = both.chunk(2, -1)
        out = torch.empty_like(both)
        to_gate, to_up = out.chunk(2, -1)
        torch.mul(grads[0], functional.silu(gate), out=to_up)
        to_gate.copy_(torch.ops.aten.silu_backward(grads[0] * up, gate))
        return out


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the sessions of a packed batch lie, and the rotary factors of every row."""

    lengths: tuple[int, ...]
    cos: Tensor  # [tokens, 1, head]
    sin: Tensor


class Layer(nn.Module):
    def __init__(self, number: int, weights: GgufWeights, shape: Shape, rank: int, scale: float) -> None:
        super().__init__()
        self.shape = shape
        self.attention_norm = nn.Buffer(weights.plain(f"blk.{number}.attn_norm.weight"))
        self.mlp_norm = nn.Buffer(weights.plain(f"blk.{number}.ffn_norm.weight"))

        def group(*modules: str) -> LoraGroup:
            parts = {f"model.layers.{number}.{m}": weights.linear(number, m) for m in modules}
            return LoraGroup(parts, rank, scale)

        self.qkv = group("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        self.out = group("self_attn.o_proj")
        self.gate_up = group("mlp.gate_proj", "mlp.up_proj")
        self.down = group("mlp.down_proj")

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        dtype, epsilon = self.qkv.dtype, self.shape.epsilon
        x = x + self.out(self._attend(self.qkv(_RmsNorm.apply(x, self.attention_norm, epsilon, dtype)), packing))
        hidden = self.gate_up(_RmsNorm.apply(x, self.mlp_norm, epsilon, dtype))
        return x + self.down(_SwiGlu.apply(hidden))

    def _attend(self, qkv: Tensor, packing: Packing) -> Tensor:
        s = self.shape
        rotated, value = qkv.view(len(qkv), -1, s.head).split((s.heads + s.kv_heads, s.kv_heads), 1)
        query, key = _rotate(rotated, packing).split((s.heads, s.kv_heads), 1)
        outs: list[Tensor] = []
        pieces = (t.transpose(0, 1).split(packing.lengths, 1) for t in (query, key, value))
        for q, k, v in zip(*pieces, strict=True):
            outs.append(_causal_attention(q, k, v).transpose(0, 1).reshape(q.shape[1], s.width))
        return torch.cat(outs)


def _causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """[heads, n, head] queries on [kv_heads, n, head] keys. Spelled out: several times faster than the fused
    kernel's backward pass in bfloat16 at the few hundred tokens of a session."""
    (heads, n, head), kv_heads = query.shape, len(key)
    grouped = query.reshape(kv_heads, heads // kv_heads * n, head)
    scores = torch.bmm(grouped, key.transpose(1, 2)).float().mul_(head**-0.5).view(heads, n, n)
    ahead = torch.ones(n, n, dtype=torch.bool).triu_(1)
    share = scores.masked_fill_(ahead, -torch.inf).softmax(-1).to(value.dtype)
    return torch.bmm(share.view(kv_heads, -1, n), value).view(heads, n, head)


def _rotate(x: Tensor, packing: Packing) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * packing.cos + torch.cat((-high, low), -1) * packing.sin


class Llama(nn.Module):
    """The base model with trainable adapters on all linear layers; embedding and output are one frozen matrix."""

    def __init__(self, path: Path, *, rank: int, alpha: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.rank, self.alpha = rank, alpha
        self.shape = Shape.read(path)
        weights = GgufWeights(path, self.shape)
        self.dtype = dtype
        self.embedding = nn.Buffer(weights.plain("token_embd.weight"))
        self.unembedding = nn.Buffer(self.embedding.to(dtype))
        self.norm = nn.Buffer(weights.plain("output_norm.weight"))
        self.layers = nn.ModuleList(
            Layer(i, weights, self.shape, rank, alpha / rank) for i in range(self.shape.layers)
        )
        for group in self.groups():
            group.use(dtype)
        self.merge()

    def groups(self) -> list[LoraGroup]:
        return [module for module in self.modules() if isinstance(module, LoraGroup)]

    def merge(self) -> None:
        """Fold the adapters into the working weights: once before the first pass and after every update."""
        for group in self.groups():
            group.merge()

    def forward(self, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Final hidden states [tokens, width] of sessions of these lengths, concatenated in `ids` [tokens]."""
        x = self.embedding[ids]
        packing = self._packing(lengths)
        for layer in self.layers:
            x = layer(x, packing)
        return _RmsNorm.apply(x, self.norm, self.shape.epsilon, self.dtype)

    def _packing(self, lengths: tuple[int, ...]) -> Packing:
        position = torch.cat([torch.arange(n) for n in lengths]).float()
        half = self.shape.head // 2
        frequency = self.shape.rope_base ** (-torch.arange(half).float() / half)
        angle = torch.outer(position, frequency).repeat(1, 2).unsqueeze(1)
        return Packing(lengths, angle.cos().to(self.dtype), angle.sin().to(self.dtype))
