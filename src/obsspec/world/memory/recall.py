"""What this call answered before: in this rollout, in this task, in tasks of the same environment, anywhere.

From tight to loose: the exact call in the exact state; the same call but for blanks and the like; the same call in
another state. A state is what the call can see of it, so unrelated changes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from obsspec.world.memory.abstraction import echoes
from obsspec.world.memory.calls import EXACT
from obsspec.world.memory.database import Cell
from obsspec.world.memory.digests import SIZE, key
from obsspec.world.memory.environments import FAMILY, Bonds, Environments, Relation, weight
from obsspec.world.memory.guess import Guess, few
from obsspec.world.memory.page import Page, increase
from obsspec.world.memory.situation import Situation
from obsspec.world.memory.store import Store


@dataclass(slots=True)
class _Support:
    """What speaks for one text among other homes."""

    relation: Relation = Relation.DIFFERENT
    homes: int = 0
    family: bool = False
    last: float = 0.0


class Recall:
    def __init__(self, store: Store, space: bytes) -> None:
        self._store = store
        self._space = space
        self._environments = Environments(store, space)

    def keys(self, scope: str, situation: Situation) -> tuple[bytes, ...]:
        """What `guesses` is going to look at."""
        return self._own_key(scope, situation), self._world_key(situation)

    def guesses(self, scope: str, situation: Situation) -> Iterator[Guess]:
        """In order of tightness; nothing looser once this very call is known in this very state."""
        found = [*self._rollout(situation), *self._own(scope, situation)]
        yield from found
        if not any(guess.certain for guess in found):
            yield from self._others(scope, situation)

    def learn(self, scope: str, situation: Situation, text: str) -> None:
        name = self._store.keep(text)
        own = self._own_key(scope, situation)
        sight = _sight(situation)
        first = not any(each.startswith(sight) for each in self._store.page(own).cells)
        self._store.add(own, sight + name + situation.reading.exact + situation.likely)
        world = self._world_key(situation)
        if first and not situation.touch.volatile:
            self._compare(scope, situation, text, name, self._store.page(world))
        self._store.add(world, self._environments.home(self._environments.own(scope)) + sight + name)

    def _rollout(self, situation: Situation) -> Iterator[Guess]:
        walk = situation.walk
        text = walk.seen.get(situation.reading.call + situation.sight)
        if text is not None:
            again = bool(walk.recent) and walk.recent[-1].text == text
            yield Guess("memory/rollout", text, (again,), 0.9, certain=True)
            return
        said = walk.said.get(situation.reading.call)
        if said is not None:
            likely, text = said
            alike = likely == situation.likely
            yield Guess("memory/stale", text, ("rollout", alike), 0.5 if alike else 0.3)

    def _own(self, scope: str, situation: Situation) -> Iterator[Guess]:
        cells = self._store.page(self._own_key(scope, situation)).cells
        if not cells:
            return
        sight = _sight(situation)
        here = {name: cell for name, cell in cells.items() if name.startswith(sight)}
        exact = {name: cell for name, cell in here.items() if _exact(name) == situation.reading.exact}
        if not here:
            yield from self._stale(cells, situation.likely)
            return
        by_text = _by_text(exact or here)
        newer = self._newer(scope, situation, max(by_text, key=lambda name: by_text[name][1]))
        source, prior = ("memory/exact", 0.9) if exact else ("memory/normal", 0.85)
        yield from self._best(source, by_text, prior, newer is not None)
        if newer is not None:
            yield from self._guess("memory/linked", newer, ("newer", few(len(by_text))), 0.5, certain=True)

    def _best(self, source: str, by_text: dict[bytes, Cell], prior: float, old: bool) -> Iterator[Guess]:
        """The latest answer and the usual one: which of the two is right more often is learnt."""
        latest = max(by_text, key=lambda name: by_text[name][1])
        usual = max(by_text, key=lambda name: (by_text[name][0], by_text[name][1]))
        total = sum(cell[0] for cell in by_text.values())
        if len(by_text) == 1:
            yield from self._guess(source, latest, ("only", few(total), old), prior, certain=True)
            return
        rule = "both" if latest == usual else "latest"
        yield from self._guess(source, latest, (rule, few(len(by_text)), old), 0.5, certain=True)
        if latest != usual:
            yield from self._guess(source, usual, ("usual", few(len(by_text)), old), 0.4, certain=True)

    def _newer(self, scope: str, situation: Situation, latest: bytes) -> bytes | None:
        """What another task of this environment answered since, if it was something else: worlds may change."""
        home, sight = self._environments.home(self._environments.own(scope)), _sight(situation)
        cells = self._store.page(self._world_key(situation)).cells
        near = [
            field
            for field in cells
            if field[SIZE : 2 * SIZE] == sight and self._environments.home(field[:SIZE]) == home
        ]
        newest = max(near, key=lambda field: cells[field][1], default=None)
        return newest[2 * SIZE :] if newest is not None and newest[2 * SIZE :] != latest else None

    def _stale(self, cells: dict[bytes, Cell], likely: bytes) -> Iterator[Guess]:
        """What it answered in another state: first where nothing that it reads was written otherwise."""
        alike = {name: cell for name, cell in cells.items() if name[2 * SIZE + EXACT :] == likely}
        by_text = _by_text(alike or cells)
        latest = max(by_text, key=lambda name: by_text[name][1])
        features = ("task", bool(alike), few(len(by_text)), few(by_text[latest][0]))
        yield from self._guess("memory/stale", latest, features, 0.6 if alike else 0.4)

    def _others(self, scope: str, situation: Situation) -> Iterator[Guess]:
        page = self._store.page(self._world_key(situation))
        if not page.cells:
            return
        own = self._environments.own(scope)
        home = self._environments.home(own)
        bonds = self._environments.bonds(home)
        support = self._support(page, _sight(situation), own, home, bonds)
        if not support:
            yield from self._elsewhere(page, own, home)
            return
        ranked = sorted(support, key=lambda name: _rank(support[name]), reverse=True)
        for place, name in enumerate(ranked[:3]):
            yield from self._other(name, support, place, bool(bonds.of))

    def _other(self, name: bytes, support: dict[bytes, _Support], place: int, discerned: bool) -> Iterator[Guess]:
        found = support[name]
        source = "memory/linked" if found.relation is Relation.SAME else "memory/world"
        rivals = sum(1 for other in support.values() if other.relation >= found.relation) - 1
        features = (int(found.relation), min(found.homes, 3), min(rivals, 2), place, found.family, discerned)
        prior = 0.85 if found.relation is Relation.SAME else 0.5 if rivals == 0 else 0.2
        text = self._store.text(name)
        if text is not None:
            yield Guess(source, text, (*features, min(len(text) // 12, 2)), prior)

    def _elsewhere(self, page: Page, own: bytes, home: bytes) -> Iterator[Guess]:
        """In other states of other tasks: of the same environment first."""
        homes = {field: self._environments.home(field[:SIZE]) for field in page.cells}
        cells = {field: cell for field, cell in page.cells.items() if field[:SIZE] != own or homes[field] != own}
        near = {field: cell for field, cell in cells.items() if homes[field] == home}
        if not cells:
            return
        by_text = _by_text(near or cells, SIZE)
        latest = max(by_text, key=lambda name: by_text[name][1])
        features = ("linked" if near else "world", min(len(by_text), 3), few(by_text[latest][0]))
        yield from self._guess("memory/stale", latest, features, 0.3)

    def _support(self, page: Page, sight: bytes, own: bytes, home: bytes, bonds: Bonds) -> dict[bytes, _Support]:
        support: dict[bytes, _Support] = {}
        seen: set[bytes] = set()
        for field, cell in page.cells.items():
            if field[SIZE : 2 * SIZE] != sight:
                continue
            other, name = self._environments.home(field[:SIZE]), field[2 * SIZE :]
            found = support.setdefault(name, _Support())
            relation = Relation.SAME if other == home else bonds.relation(other)
            found.relation = max(found.relation, relation)
            found.family = found.family or other[:FAMILY] == own[:FAMILY]
            found.last = max(found.last, cell[1])
            if other + name not in seen:
                seen.add(other + name)
                found.homes += 1
        return support

    def _compare(self, scope: str, situation: Situation, text: str, name: bytes, page: Page) -> None:
        sight = _sight(situation)
        answers: dict[bytes, tuple[float, bytes]] = {}
        for field, cell in page.cells.items():
            if field[SIZE : 2 * SIZE] == sight:
                other = self._environments.home(field[:SIZE])
                answers[other] = max(answers.get(other, (0.0, b"")), (cell[0], field[2 * SIZE :]))
        if answers:
            different = len({*(answer for _, answer in answers.values()), name})
            worth = weight(text, echoes(situation.reading, text), different, len(answers))
            others = [(other, answer) for other, (_, answer) in answers.items()]
            self._environments.compare(scope, name, worth, others)

    def _guess(
        self, source: str, name: bytes, features: tuple[object, ...], prior: float, *, certain: bool = False
    ) -> Iterator[Guess]:
        text = self._store.text(name)
        if text is not None:
            yield Guess(source, text, features, prior, certain)

    def _own_key(self, scope: str, situation: Situation) -> bytes:
        return key(self._space, "own", scope, situation.reading.call)

    def _world_key(self, situation: Situation) -> bytes:
        return key(self._space, "world", situation.reading.call)


def _sight(situation: Situation) -> bytes:
    return situation.sight.ljust(SIZE, b"\0")


def _exact(cell: bytes) -> bytes:
    return cell[2 * SIZE : 2 * SIZE + EXACT]


def _by_text(cells: dict[bytes, Cell], skip: int = 0) -> dict[bytes, Cell]:
    """Counts and times by the name of the text, whatever the state and the spelling of the call."""
    found: dict[bytes, Cell] = {}
    for field, (count, last) in cells.items():
        increase(found, field[skip + SIZE : skip + 2 * SIZE], count, last)
    return found


def _rank(support: _Support) -> tuple[int, int, bool, float]:
    return (int(support.relation), support.homes, support.family, support.last)
