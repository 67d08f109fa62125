"""The prefix cache of one replica: which token sequences it holds, least recently used conversations first out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from obsspec.values import Tokens

LATEST = 16  # sequences of one conversation that are looked at


@dataclass(slots=True)
class _Conversation:
    held: list[Tokens] = field(default_factory=list[Tokens])  # none is a prefix of another
    tokens: int = 0  # of the longest


class PrefixCache:
    """Conversations are told apart by the first token of their prompts. `capacity` in tokens."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._conversations: OrderedDict[int, _Conversation] = OrderedDict()
        self._tokens = 0

    def cached(self, prompt: Tokens) -> int:
        """How many tokens of a prompt need not be computed; at least one has to be."""
        found = self._conversations.get(prompt[0])
        if found is None:
            return 0
        self._conversations.move_to_end(prompt[0])
        best = 0
        for held in reversed(found.held):
            best = common(held, prompt, best)
            if best >= len(held):  # no other can have more: it would have this one as its prefix
                break
        return min(best, len(prompt) - 1)

    def keep(self, sequence: Tokens) -> None:
        """All of a sequence was computed."""
        found = self._conversations.setdefault(sequence[0], _Conversation())
        self._conversations.move_to_end(sequence[0])
        found.held = [held for held in found.held[-LATEST + 1 :] if not _begins(sequence, held)]
        found.held.append(sequence)
        longest = max(found.tokens, len(sequence))
        self._tokens += longest - found.tokens
        found.tokens = longest
        while self._tokens > self._capacity and len(self._conversations) > 1:
            _, gone = self._conversations.popitem(last=False)
            self._tokens -= gone.tokens

    def forget(self, conversation: int) -> None:
        gone = self._conversations.pop(conversation, None)
        self._tokens -= gone.tokens if gone is not None else 0


def _begins(sequence: Tokens, held: Tokens) -> bool:
    """Whether `held` is a prefix. Sequences that differ at its last token, as most do, are not compared further."""
    last = len(held) - 1
    return len(sequence) > last and sequence[last] == held[last] and common(sequence, held) == len(held)


def common(a: Tokens, b: Tokens, least: int = 0) -> int:
    """Length of the common prefix, if it is longer than `least`, else `least`. Halving: no token is compared twice."""
    end = min(len(a), len(b))
    if end <= least or a[:least] != b[:least]:
        return least
    begin = least
    if a[begin:end] == b[begin:end]:
        return end
    while begin < end:
        middle = (begin + end + 1) // 2
        if a[begin:middle] == b[begin:middle]:
            begin = middle
        else:
            end = middle - 1
    return begin
