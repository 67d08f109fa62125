"""Which conversation a request belongs to: the one whose latest prompt and answer the request begins with."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import cast

from obsspec.integrations.proxy.asked import Asked
from obsspec.integrations.proxy.conversation import Call, Conversation
from obsspec.integrations.proxy.figures import Figures

_LOOKED_AT = 256  # conversations with one and the same prompt, the latest first
Place = tuple[str, bytes, int]  # scope, digest of the prompt, its length


class Conversations:
    """At most `most` of them, and `most_bytes` together, the one that was silent longest is forgotten first; and none
    after `idle_s` of silence. One that waits for an answer stays, whatever it takes.

    `open` makes a new one.
    """

    def __init__(
        self, open: Callable[[Asked], Conversation], figures: Figures, most: int, most_bytes: int, idle_s: float
    ) -> None:
        self._open = open
        self._figures = figures
        self._most = most
        self._most_bytes = most_bytes
        self._idle_s = idle_s
        self._all: OrderedDict[Conversation, int] = OrderedDict()  # bytes as last counted; silent longest first
        self._counted = 0
        self._places: dict[Place, list[Conversation]] = {}
        self._lengths: dict[str, Counter[int]] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def size(self) -> int:
        """Bytes of what they remember."""
        return sum(conversation.size for conversation in self._all)

    def ask(self, asked: Asked, body: bytes) -> tuple[Conversation, Call] | None:
        """The request as the next one of its conversation. None for one that can only be passed on."""
        conversation = None
        try:
            prefixes = list(self._prefixes(asked))
            conversation = self._find(asked, prefixes) or self._new(asked)
            if conversation is None:
                return None
            call = conversation.ask(asked, body)
        except Exception:  # noqa: BLE001 - typed: the client is served as if we were not there
            self._figures.confused += 1
            if conversation is not None:
                conversation.give_up()
                self._forget(conversation)
            return None
        self._move(conversation, (asked.scope, prefixes[-1][1], len(asked.units)))
        self._all.move_to_end(conversation)
        self._count(conversation)
        self._forget_beyond()
        return conversation, call

    def forget_idle(self, now_s: float) -> None:
        for conversation in self._all:  # answers have come since they were asked for
            self._count(conversation)
        self._forget_beyond()
        for conversation in list(self._all):
            if now_s - conversation.asked_s < self._idle_s:
                return
            if not conversation.waits:
                self._forget(conversation)

    def forget_silent(self) -> None:
        """All that no client waits for: what they started early is cancelled."""
        for conversation in list(self._all):
            if not conversation.waits:
                self._forget(conversation)

    def close(self) -> None:
        for conversation in list(self._all):
            self._forget(conversation)

    def _find(self, asked: Asked, prefixes: Sequence[tuple[int, bytes]]) -> Conversation | None:
        for length, digest in reversed(prefixes):
            for conversation in islice(reversed(self._places.get((asked.scope, digest, length), ())), _LOOKED_AT):
                if conversation.continued_by(asked):
                    return conversation
        return None

    def _new(self, asked: Asked) -> Conversation | None:
        """None if there are too many, and all of them wait for an answer."""
        if len(self._all) >= self._most:
            silent = next((each for each in self._all if not each.waits), None)
            if silent is None:
                return None
            self._figures.sessions_evicted += 1
            self._forget(silent)
        self._figures.sessions_opened += 1
        conversation = self._open(asked)
        self._all[conversation] = 0
        return conversation

    def _count(self, conversation: Conversation) -> None:
        size = conversation.size
        self._counted += size - self._all[conversation]
        self._all[conversation] = size

    def _forget_beyond(self) -> None:
        """Those that are too many in bytes."""
        for conversation in list(self._all) if self._counted > self._most_bytes else ():
            if self._counted > self._most_bytes and not conversation.waits:
                self._figures.sessions_evicted += 1
                self._forget(conversation)

    def _prefixes(self, asked: Asked) -> Iterator[tuple[int, bytes]]:
        """Length and digest of the beginnings that a known prompt may be; the whole prompt is the last."""
        lengths = sorted(n for n in self._lengths.get(asked.scope, ()) if n < len(asked.units))
        digest, start = blake2b(digest_size=16), 0
        for length in (*lengths, len(asked.units)):
            digest.update(_bytes(asked.units[start:length]))
            start = length
            yield length, digest.copy().digest()

    def _move(self, conversation: Conversation, place: Place) -> None:
        self._leave(conversation)
        conversation.place = place
        self._places.setdefault(place, []).append(conversation)
        self._lengths.setdefault(place[0], Counter())[place[2]] += 1

    def _leave(self, conversation: Conversation) -> None:
        place = conversation.place
        if place is None:
            return
        conversation.place = None
        here, lengths = self._places[place], self._lengths[place[0]]
        here.remove(conversation)
        if not here:
            del self._places[place]
        lengths[place[2]] -= 1
        if not lengths[place[2]]:
            del lengths[place[2]]
        if not lengths:
            del self._lengths[place[0]]

    def _forget(self, conversation: Conversation) -> None:
        self._leave(conversation)
        self._counted -= self._all.pop(conversation, 0)
        conversation.close()
        conversation.check_quiescent()


def _bytes(units: Sequence[str] | Sequence[int]) -> bytes:
    if units and isinstance(units[0], str):
        return b"".join(unit.encode() + b"\n" for unit in cast("Sequence[str]", units))
    return array("q", cast("Sequence[int]", units)).tobytes()
