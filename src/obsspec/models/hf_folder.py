"""A model folder as Hugging Face libraries and vLLM load it: base model with an adapter merged in, and tokenizer.

The tokenizer is that of the GGUF file and makes the same ids as llama-server; the one that `transformers` derives from
the file would join digits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from obsspec.models.adapter import read_adapter
from obsspec.models.base import base_model_path
from obsspec.models.gguf_metadata import read_metadata
from obsspec.models.merge import merged_weights
from obsspec.models.tokenizer import load_vocabulary


def write_hf_folder(folder: Path, adapter: Path | None = None, *, base: Path | None = None) -> Path:
    """Writes config.json, model.safetensors (float32), tokenizer.json and tokenizer_config.json; returns the folder.

    Raises `ConfigError` for an unusable model file, `OSError` for a folder that can not be written.
    """
    base = base or base_model_path()
    weights = merged_weights(base, read_adapter(adapter) if adapter else None)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(read_metadata(base)))
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    load_vocabulary(base).save(folder / "tokenizer.json")
    tensors = {name: np.ascontiguousarray(values) for name, values in weights.items()}
    writer: Any = safetensors.numpy  # its stubs are partly untyped
    writer.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _config(metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": metadata["llama.rope.freq_base"],
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
