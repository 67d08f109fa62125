"""Which tasks start in the same environment, learnt from what they answered: agreement links, contradiction splits.

Each task has a *home*: a label that stands for an environment, at first its own. Whenever a task gives an answer for
the first time, it is compared with the answers that other homes gave to the same call in the same state. An equal
answer that says something adds to the evidence that two homes are one; a different one speaks against it. Enough
evidence and nothing against it merges them. A task that goes on to contradict its home gets a home of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from obsspec.world.memory.digests import SIZE, digest, key
from obsspec.world.memory.page import Page
from obsspec.world.memory.store import Store

FAMILY = 4  # leading bytes of a label that name the family of the task that founded it
_AGREE, _AGAINST = b"+", b"-"
_ENOUGH = 2.0
_NUMBERED = re.compile(r"[-_/]?\d+\Z")


class Relation(IntEnum):
    """What is known of two homes."""

    SAME = 3
    LIKELY = 2  # answers in common that say something, none against
    UNKNOWN = 1
    DIFFERENT = 0


@dataclass(frozen=True, slots=True)
class Bonds:
    """The evidence of one home about others: (agreement, contradictions)."""

    of: Mapping[bytes, tuple[float, float]]

    def relation(self, other: bytes) -> Relation:
        agree, against = self.of.get(other, (0.0, 0.0))
        if against > 0 and _same(agree, against) < 0.5:
            return Relation.DIFFERENT
        return Relation.LIKELY if agree >= 1.0 else Relation.UNKNOWN


@dataclass(slots=True)
class _Derived:
    changes: int
    merges: int
    bonds: Bonds


class Environments:
    def __init__(self, store: Store, space: bytes) -> None:
        self._store = store
        self._space = space
        self._merges = 0
        self._homes: dict[bytes, bytes] = {}
        self._moment = (0, 0)

    def own(self, scope: str) -> bytes:
        """The label of a task before anything is known of it."""
        return _own(scope)

    def home(self, label: bytes) -> bytes:
        """The label of the environment that this label stands for by now."""
        moment = (self._merges, self._store.moment)
        if moment != self._moment:
            self._homes, self._moment = {}, moment
        home = self._homes.get(label)
        if home is None:
            home = self._homes[label] = self._follow(label)
        return home

    def _follow(self, label: bytes) -> bytes:
        visited = {label}
        while True:
            cells = self._store.page(self._key("home", label)).cells
            if not cells:
                return label
            label = max(cells, key=lambda each: cells[each][1])
            if label in visited:  # two processes merged the other way round at the same time
                return min(visited)
            visited.add(label)

    def bonds(self, home: bytes) -> Bonds:
        page = self._store.page(self._key("bond", home))
        derived = page.derived
        if not isinstance(derived, _Derived) or (derived.changes, derived.merges) != (page.changes, self._merges):
            derived = _Derived(page.changes, self._merges, self._bonds(page))
            page.derived = derived
        return derived.bonds

    def compare(self, scope: str, text: bytes, weight: float, others: Iterable[tuple[bytes, bytes]]) -> None:
        """A first answer of a task, next to the (home, answer) of every home that answered the same question."""
        own = self.own(scope)
        home = self.home(own)
        for other, answer in others:
            agrees = answer == text
            if other == home and home != own:
                self._note(own, home, agrees, weight)
                self._split_if_wrong(own, home)
            elif other != home:
                self._note(home, other, agrees, weight)
                self._note(other, home, agrees, weight)
                if agrees:
                    self._merge_if_sure(home, other)
                    home = self.home(home)

    def _note(self, home: bytes, other: bytes, agrees: bool, weight: float) -> None:
        key = self._key("bond", home)
        if agrees:
            self._store.add(key, other + _AGREE, weight)
        else:
            self._store.add(key, other + _AGAINST, 1.0)

    def _merge_if_sure(self, home: bytes, other: bytes) -> None:
        agree, against = self.bonds(home).of.get(other, (0.0, 0.0))
        if agree >= _ENOUGH and _same(agree, against) > 0.9:
            self._store.add(self._key("home", home), other)
            self._merges += 1

    def _split_if_wrong(self, own: bytes, home: bytes) -> None:
        agree, against = self.bonds(own).of.get(home, (0.0, 0.0))
        if against > 0 and _same(agree + 1.0, against) < 0.5:
            fresh = own[:FAMILY] + digest(own, "split", home)[FAMILY:]
            self._store.add(self._key("home", own), fresh)
            self._store.add(self._key("bond", fresh), home + _AGAINST, 2.0)
            self._merges += 1

    def _bonds(self, page: Page) -> Bonds:
        of: dict[bytes, tuple[float, float]] = {}
        for name, (amount, _) in page.cells.items():
            other = self.home(name[:SIZE])
            agree, against = of.get(other, (0.0, 0.0))
            of[other] = (agree + amount, against) if name[SIZE:] == _AGREE else (agree, against + amount)
        return Bonds(of)

    def _key(self, kind: str, label: bytes) -> bytes:
        return key(self._space, kind, label)


def family(scope: str) -> str:
    """The name of a task without its number."""
    return _NUMBERED.sub("", scope)


@lru_cache(maxsize=65536)
def _own(scope: str) -> bytes:
    return digest(family(scope))[:FAMILY] + digest("task", scope)[FAMILY:]


def weight(text: str, echoes: bool, answers: int, homes: int) -> float:
    """How much an equal answer says: `answers` different ones are known of `homes` homes."""
    if len(text) < 12 or echoes or (answers < 2 and homes > 2):
        return 0.2  # short, or made of the question, or what everybody answers
    return 2.0 if answers >= 2 else 1.0


def _same(agree: float, against: float) -> float:
    """Posterior mean that two homes are one; a contradiction weighs as much as four agreements."""
    return (agree + 0.5) / (agree + 4 * against + 0.6)
