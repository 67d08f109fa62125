"""How a Llama's tensors are called and laid out in the Hugging Face format and in GGUF.

The same matrices, except that llama.cpp interleaves the two halves of each head's rotary pairs in the rows of the
query and key projections.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INSIDE = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def hf_name(gguf_name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; `KeyError` for anything but a Llama's."""
    if gguf_name in _OUTSIDE:
        return _OUTSIDE[gguf_name]
    _, layer, module, kind = gguf_name.split(".")
    return f"model.layers.{layer}.{_INSIDE[module]}.{kind}"


def rotary_heads(gguf_name: str, metadata: dict[str, Any]) -> int | None:
    """The number of heads whose rows are interleaved in this tensor; None when the two layouts are the same."""
    if gguf_name.endswith(".attn_q.weight"):
        return metadata["llama.attention.head_count"]
    if gguf_name.endswith(".attn_k.weight"):
        return metadata["llama.attention.head_count_kv"]
    return None


def interleave(weight: FloatArray, heads: int) -> FloatArray:
    """Rows in GGUF order from rows in Hugging Face order. [rows, width] -> [rows, width]."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def deinterleave(weight: FloatArray, heads: int) -> FloatArray:
    """The inverse of `interleave`."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)
