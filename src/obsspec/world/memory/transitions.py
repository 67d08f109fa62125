"""What calls like this one answer: by shape, by class, and by what was answered just before.

Three tables of counts from a condition to observations with holes. The table of shapes generalises over arguments. The
transition table is contrastive: what follows this class of call after this kind of observation counts by how much more
often it does so than after others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obsspec.world.memory.abstraction import abstract, fill
from obsspec.world.memory.calls import HOLE
from obsspec.world.memory.digests import key
from obsspec.world.memory.guess import Guess, few, share
from obsspec.world.memory.page import Page
from obsspec.world.memory.situation import Situation
from obsspec.world.memory.store import Store

AGAIN, OTHERWISE = b"=", b"!"
_DIGITS = re.compile(r"\d+")


class Transitions:
    def __init__(self, store: Store, space: bytes) -> None:
        self._store = store
        self._space = space

    def keys(self, situation: Situation) -> tuple[bytes, ...]:
        """What `guesses` is going to look at."""
        group, before = situation.reading.group, _before(situation)
        return (
            self._key("shape", situation.reading.shape),
            self._key("group", group),
            self._key("after", group, before),
            self._key("again", group, before),
        )

    def guesses(self, situation: Situation) -> Iterator[Guess]:
        reading, before = situation.reading, _before(situation)
        general = self._page("group", reading.group)
        yield from self._guess("memory/template", "shape", situation, self._page("shape", reading.shape))
        yield from self._guess("memory/template", "class", situation, general)
        yield from self._guess(
            "memory/transition", "after", situation, self._page("after", reading.group, before), general
        )
        yield from self._again(situation, before)

    def learn(self, situation: Situation, text: str) -> None:
        reading, before = situation.reading, _before(situation)
        name = self._store.keep(abstract(reading, text))
        for condition in (("shape", reading.shape), ("group", reading.group), ("after", reading.group, before)):
            self._store.add(self._key(*condition), name)
        if situation.walk.recent:
            again = situation.walk.recent[-1].text == text
            self._store.add(self._key("again", reading.group, before), AGAIN if again else OTHERWISE)

    def _guess(
        self, source: str, table: str, situation: Situation, page: Page, general: Page | None = None
    ) -> Iterator[Guess]:
        template = self._store.text(page.best) if page.best is not None else None
        if page.best is None or template is None:
            return
        text = fill(situation.reading, template)
        if text is None:
            return
        elsewhere = share(general.count(page.best), general.total) if general is not None else 0
        features = (table, share(page.count(page.best), page.total), few(page.total), _look(template), elsewhere)
        yield Guess(source, text, features, 0.1)

    def _again(self, situation: Situation, before: str) -> Iterator[Guess]:
        """The observation just before, once more."""
        page = self._page("again", situation.reading.group, before)
        if page.total and situation.walk.recent:
            text = situation.walk.recent[-1].text
            features = ("again", share(page.count(AGAIN), page.total), few(page.total), not text)
            yield Guess("memory/transition", text, features, 0.1)

    def _page(self, *condition: str | bytes) -> Page:
        return self._store.page(self._key(*condition))

    def _key(self, *condition: str | bytes) -> bytes:
        return key(self._space, *condition)


def _look(template: str) -> str:
    """Kinds of observation that are right for different reasons."""
    if not template:
        return "empty"
    return "holes" if HOLE in template else "short" if len(template) < 12 else "long"


def _before(situation: Situation) -> str:
    """The class of what happened just before."""
    if not situation.walk.recent:
        return ""
    past = situation.walk.recent[-1]
    opening = _DIGITS.sub("0", abstract(past.reading, past.text[:200])[:24])
    return f"{past.reading.group}\x05{opening}"
