"""Similar calls of the past with their observations: what one answered, with its arguments exchanged for ours.

Looks at the calls of this rollout and at the latest ones of the same class anywhere; the most similar one, by the
words that both have and by what preceded them, speaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from obsspec.world.memory.abstraction import abstract, fill
from obsspec.world.memory.calls import HOLE, Reading, read_text
from obsspec.world.memory.digests import SIZE, key
from obsspec.world.memory.guess import Guess
from obsspec.world.memory.situation import Situation
from obsspec.world.memory.store import Store

KEPT = 8  # episodes of one class that are looked at
_LONG = 2000  # characters of a call that is not kept
_WORD = re.compile(r"\w+|[^\w\s]")


class Episodes:
    def __init__(self, store: Store, space: bytes) -> None:
        self._store = store
        self._space = space

    def keys(self, scope: str, situation: Situation) -> tuple[bytes, ...]:
        """What `guesses` is going to look at."""
        return (self._key(scope, situation.reading),)

    def guesses(self, scope: str, situation: Situation) -> Iterator[Guess]:
        reading = situation.reading
        found = [
            (similarity(reading, past.reading), 1, past.reading, past.text)
            for past in situation.walk.recent
            if past.reading.name == reading.name
        ]
        found += [(similarity(reading, old), 0, old, text) for old, text in self._stored(scope, situation)]
        if not found:
            return
        best = max(found, key=lambda each: (each[0], each[1]))
        likeness, here, old, text = best
        template = abstract(old, text)
        adapted = fill(reading, template) if old.shape == reading.shape else text if HOLE not in template else None
        if adapted is None:
            return
        features = (int(likeness * 8), bool(here), old.shape == reading.shape, adapted == text, not text)
        yield Guess("memory/episode", adapted, features, 0.1)

    def learn(self, scope: str, situation: Situation, text: str) -> None:
        reading = situation.reading
        if len(reading.text) > _LONG:
            return
        name = self._store.keep(reading.text) + self._store.keep(text)
        self._store.add(self._key(scope, reading), name)

    def _stored(self, scope: str, situation: Situation) -> Iterator[tuple[Reading, str]]:
        reading = situation.reading
        cells = self._store.page(self._key(scope, reading)).cells
        for name in sorted(cells, key=lambda each: cells[each][1], reverse=True)[:KEPT]:
            call, text = self._store.text(name[:SIZE]), self._store.text(name[SIZE:])
            if call is not None and text is not None:
                yield read_text(reading.kind, reading.name, call), text

    def _key(self, scope: str, reading: Reading) -> bytes:
        return key(self._space, "episode", scope, reading.group)


def similarity(first: Reading, second: Reading) -> float:
    """Shared words over all words."""
    ours, theirs = _words(first.normal), _words(second.normal)
    return len(ours & theirs) / max(1, len(ours | theirs))


@lru_cache(maxsize=8192)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text[:4000]))
