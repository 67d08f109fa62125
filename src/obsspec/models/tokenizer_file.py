"""The vocabulary of a `tokenizer.json`, as Hugging Face models ship it: for models behind a token endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from obsspec.values import ConfigError, Tokens


class FileVocabulary:
    """Added tokens (`<|im_end|>`, `<tool_call>`, ...) exist by name only; text never encodes to one of them."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` for a file that is missing or no tokenizer."""
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            added: list[dict[str, Any]] = content.get("added_tokens") or []
            # Without its added tokens and its post-processor a tokenizer only knows text.
            self._tokenizer = Tokenizer.from_str(json.dumps({**content, "added_tokens": [], "post_processor": None}))
        except OSError as error:
            raise ConfigError(f"cannot read tokenizer {path} ({error.strerror}): give a tokenizer.json") from None
        except Exception as error:  # noqa: BLE001 - the tokenizers package raises bare exceptions
            raise ConfigError(f"{path} is no tokenizer.json ({error}): give the file of the served model") from None
        self._controls = {str(token["content"]): int(token["id"]) for token in added}
        self._control_ids = frozenset(self._controls.values())
        self._text_ids = frozenset(self._tokenizer.get_vocab().values())

    def encode(self, text: str) -> Tokens:
        """Ordinary ids of the text. Lone surrogates are an error (`TypeError`)."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int], /) -> str:
        """The text of ordinary ids; control ids are left out."""
        return self._tokenizer.decode([i for i in ids if i not in self._control_ids], skip_special_tokens=False)

    def control(self, name: str) -> int:
        """The id of an added token; `KeyError` if the model has none of that name."""
        return self._controls[name]

    def is_control(self, token_id: int) -> bool:
        """Whether this id is no text: an added token, or an id outside the vocabulary (padding)."""
        return token_id in self._control_ids or token_id not in self._text_ids
