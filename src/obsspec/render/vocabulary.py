"""The part of a tokenizer that renderers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from obsspec.values import Tokens


class Vocabulary(Protocol):
    """Text to ids and back. Text never encodes to a control id, whatever it spells."""

    def encode(self, text: str) -> Tokens: ...

    def decode(self, ids: Sequence[int], /) -> str:
        """Ordinary ids to text; invalid UTF-8 becomes U+FFFD. Raises `KeyError` for a control id."""
        ...

    def control(self, name: str) -> int:
        """The id of a control token. Raises `KeyError` when the vocabulary has no such token."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether this id is no text: a control token, or an id outside the vocabulary (padding)."""
        ...
