"""A toy byte-pair vocabulary: every byte is a token, a few merges make words, control tokens exist only by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from obsspec.values import Tokens

MERGES = (("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo"), ("c", "a"), ("ca", "t"), (" ", "f"), ("o", "k"))
CONTROLS = ("<|im_start|>", "<|im_end|>", "<jupyter_output>")


class ToyVocabulary:
    """Ids 0..255 are bytes, then come the merges in order of rank, then the control tokens.

    With the default merges, `[he, llo]` decodes to "hello" but "hello" encodes to `[hello]`: as in every real
    vocabulary, decoding and encoding again does not give the sampled ids back.
    """

    def __init__(self, merges: Sequence[tuple[str, str]] = MERGES, controls: Sequence[str] = CONTROLS) -> None:
        pairs = [(left.encode(), right.encode()) for left, right in merges]
        self._ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._pieces = [bytes([i]) for i in range(256)] + [left + right for left, right in pairs]
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._controls = {name: len(self._pieces) + i for i, name in enumerate(controls)}
        self.size = len(self._pieces) + len(controls)

    def encode(self, text: str) -> Tokens:
        """Ordinary ids only. A lone surrogate is an error (`UnicodeEncodeError`)."""
        data = text.encode()
        if not any(piece in data for piece in self._pieces[256:]):
            return tuple(data)
        pieces = [bytes([byte]) for byte in data]
        while len(pieces) > 1:
            pairs = enumerate(pairwise(pieces))
            ranked = [(self._ranks[pair], i) for i, pair in pairs if pair in self._ranks]
            if not ranked:
                break
            _, at = min(ranked)
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        return tuple(self._ids[piece] for piece in pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """Invalid UTF-8 becomes U+FFFD. Raises `KeyError` for a control id."""
        if ids and not 0 <= min(ids) <= max(ids) < len(self._pieces):
            raise KeyError("not an ordinary id")
        return b"".join(self._pieces[i] for i in ids).decode(errors="replace")

    def control(self, name: str) -> int:
        return self._controls[name]

    def is_control(self, token_id: int) -> bool:
        return not 0 <= token_id < len(self._pieces)

    def id(self, piece: str) -> int:
        """The id of one ordinary token by its text."""
        return self._ids[piece.encode()]


@lru_cache(maxsize=1)
def toy_vocabulary() -> ToyVocabulary:
    """The toy vocabulary with the default merges and the control tokens of the terminal format."""
    return ToyVocabulary()
