"""A Llama of two layers with random weights, as a GGUF file."""

from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY = 2, 32, 4, 2, 48, 300


def write_tiny(path: Path) -> Path:
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    for name, shape in _shapes().items():
        values = rng.normal(0.0, 0.3, shape) + (1.0 if "norm" in name else 0.0)
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes() -> dict[str, tuple[int, ...]]:
    kv = WIDTH // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (VOCABULARY, WIDTH), "output_norm": (WIDTH,)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_q": (WIDTH, WIDTH),
            f"blk.{i}.attn_k": (kv, WIDTH),
            f"blk.{i}.attn_v": (kv, WIDTH),
            f"blk.{i}.attn_output": (WIDTH, WIDTH),
            f"blk.{i}.ffn_gate": (HIDDEN, WIDTH),
            f"blk.{i}.ffn_up": (HIDDEN, WIDTH),
            f"blk.{i}.ffn_down": (WIDTH, HIDDEN),
            f"blk.{i}.attn_norm": (WIDTH,),
            f"blk.{i}.ffn_norm": (WIDTH,),
        }
    return shapes
