"""Writes a state dict as a GGUF file that llama-server serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import gguf
import numpy as np

from obsspec.models.layout import FloatArray, hf_name, interleave, rotary_heads

Progress = Callable[[float], None]  # 0..1

_Q8_0 = gguf.GGMLQuantizationType.Q8_0
_TYPES = "tokenizer.ggml.token_type"
_NORMAL, _UNUSED = 1, 5  # llama.cpp's token types


def write_gguf(weights: Mapping[str, FloatArray], path: Path, *, like: Path, progress: Progress | None = None) -> None:
    """A Q8_0 file (norms in F32) of `weights`, Hugging Face names, with the architecture and vocabulary of `like`.

    The file appears under its name complete or not at all. Tokens that are no whole UTF-8 characters are marked as
    unused, which keeps their ids but empties their text: llama-server streams a token only when the text so far ends
    with a whole character, and would never send the id of one that does not.
    """
    reader = gguf.GGUFReader(like)
    fields = {name: (field, field.contents()) for name, field in reader.fields.items()}
    metadata = {name: value for name, (_, value) in fields.items()}
    part = path.with_name(f".{path.name}.{uuid4().hex}")  # several may be writing it
    writer = gguf.GGUFWriter(part, metadata["general.architecture"])
    try:
        for name, (field, value) in fields.items():
            _copy_field(writer, name, field, _whole_characters(metadata) if name == _TYPES else value)
        for done, tensor in enumerate(reader.tensors):
            values = weights[hf_name(tensor.name)]
            heads = rotary_heads(tensor.name, metadata)
            _add_tensor(writer, tensor.name, values if heads is None else interleave(values, heads))
            if progress is not None:
                progress(done / len(reader.tensors))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if progress is not None:
        progress(1.0)


def _copy_field(writer: gguf.GGUFWriter, name: str, field: gguf.ReaderField, value: Any) -> None:
    if name.startswith("GGUF.") or name == "general.architecture":
        return
    if name == "general.file_type":
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
        return
    kind = field.types[0]
    writer.add_key_value(name, value, kind, field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None)


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: FloatArray) -> None:
    if values.ndim == 1:
        writer.add_tensor(name, values.astype(np.float32))
    else:
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(values), _Q8_0), raw_dtype=_Q8_0)


def _whole_characters(metadata: dict[str, Any]) -> list[int]:
    """The token types, with every ordinary token that is no sequence of whole characters marked as unused."""
    types: list[int] = metadata[_TYPES]
    names: list[str] = metadata["tokenizer.ggml.tokens"]
    return [
        _UNUSED if kind == _NORMAL and not _is_text(name) else kind for name, kind in zip(names, types, strict=True)
    ]


def _is_text(name: str) -> bool:
    try:
        bytes(_BYTES[character] for character in name).decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_characters() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable ones stand for themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(hidden)}


_BYTES = _byte_characters()
