"""Text and token ids: the vocabulary of a GGUF model, the same one that llama-server uses.

Text is always encoded to *ordinary* ids: a tool that prints `<|im_end|>` is seven harmless tokens. Control
ids exist only by name (`Vocabulary.control`), so nothing that was read can open or close a turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from obsspec.models.base import base_model_path
from obsspec.models.gguf_metadata import read_metadata
from obsspec.values import ConfigError, Tokens

_CONTROL_TYPE = 3  # llama.cpp's LLAMA_TOKEN_TYPE_CONTROL
_SUPPORTED = ("gpt2", "smollm")  # tokenizer.ggml.model, tokenizer.ggml.pre


class Vocabulary:
    """Token ids of one model.

    `decode(encode(text)) == text` except for the few characters whose bytes the vocabulary lacks; SmolLM2 has
    none for U+0004, U+0006, U+0013, U+0014, U+0016, U+001D and for most code points above U+3FFFF. They are
    dropped, as llama.cpp drops them.
    """

    def __init__(self, metadata: dict[str, Any]) -> None:
        names: list[str] = metadata["tokenizer.ggml.tokens"]
        types: list[int] = metadata["tokenizer.ggml.token_type"]
        ids = {name: number for number, name in enumerate(names)}
        self._controls = {names[i]: i for i, kind in enumerate(types) if kind == _CONTROL_TYPE}
        self._control_ids = frozenset(self._controls.values())
        self._tokenizer = _byte_level_bpe(ids, metadata["tokenizer.ggml.merges"])
        self.size = len(names)

    @property
    def tokenizer(self) -> Tokenizer:
        """A copy of what encodes text here, for libraries that want one of their own kind."""
        return Tokenizer.from_str(self._tokenizer.to_str())

    def encode(self, text: str) -> Tokens:
        """Ordinary ids of the text, never a control id. Lone surrogates are an error (`TypeError`)."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Iterable[int], *, spell_controls: bool = False) -> str:
        """The text of the ids; invalid UTF-8 becomes U+FFFD. Control ids are left out, or spelled by name."""
        ids = list(token_ids)
        if any(not 0 <= i < self.size for i in ids):
            raise ValueError(f"a token id is outside the vocabulary of {self.size}")
        if not spell_controls:
            ids = [i for i in ids if i not in self._control_ids]
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def save(self, path: Path) -> None:
        """Writes a tokenizer.json that encodes text as `encode` does and knows the control tokens by name."""
        named: Any = Tokenizer.from_str(self._tokenizer.to_str())  # its stubs are partly untyped
        named.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in self._controls])
        named.save(str(path))

    def control(self, name: str) -> int:
        """The id of a control token such as `<|im_end|>`; `KeyError` if the model has none of that name."""
        return self._controls[name]

    def is_control(self, token_id: int) -> bool:
        """Whether this id is no text: a control token, or an id outside the vocabulary."""
        return token_id in self._control_ids or not 0 <= token_id < self.size


@lru_cache(maxsize=4)
def load_vocabulary(model: Path | None = None) -> Vocabulary:
    """The vocabulary of a GGUF file, by default the base model's; read once per process.

    Raises `ConfigError` for a file with another kind of tokenizer.
    """
    path = model or base_model_path()
    metadata = read_metadata(path)
    kind = (metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre"))
    if kind != _SUPPORTED:
        raise ConfigError(f"{path} has tokenizer {kind}, supported is {_SUPPORTED}: use a SmolLM2 model")
    return Vocabulary(metadata)


def _byte_level_bpe(ids: dict[str, int], merges: list[str]) -> Tokenizer:
    """Byte-level BPE without special tokens; digits are split one by one before the GPT-2 pattern."""
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[_pair(merge) for merge in merges]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    pattern = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pattern])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ")
    return left, right
