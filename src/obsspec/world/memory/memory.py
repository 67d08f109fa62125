"""The memory as a world model: what calls answered before, with confidences learnt from hits and misses.

From the exact same call in the exact same state to calls that only look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from obsspec.protocols import Emit
from obsspec.values import Context, Observation, Prediction
from obsspec.world.memory.digests import digest
from obsspec.world.memory.episodes import Episodes
from obsspec.world.memory.guess import Guess
from obsspec.world.memory.recall import Recall
from obsspec.world.memory.situation import Situation, Situations
from obsspec.world.memory.store import Store
from obsspec.world.memory.transitions import Transitions
from obsspec.world.memory.trust import Trust

_TRUSTED = 0.5  # where what this call answered elsewhere is so probable, similar calls are not asked


class Mode(StrEnum):
    READ_WRITE = "read_write"  # looks up and learns
    READ_ONLY = "read_only"  # looks up; what it sees is forgotten
    ISOLATED = "isolated"  # knows only what it has seen itself


@dataclass(frozen=True, slots=True)
class Ranked:
    """A distinct text with the confidence of the best guess that leads to it."""

    text: str
    source: str
    confidence: float


class Memory:
    """`floor`: what is less probable is not emitted.

    `split` names the part of the store that is used; parts see nothing of each other, and a task whose calls were
    learnt in one part is refused in every other (counted in `refused`). `predict` never waits.
    """

    def __init__(
        self,
        store: Store,
        *,
        mode: Mode = Mode.READ_WRITE,
        split: str = "train",
        floor: float = 0.5,
    ) -> None:
        self._store = Store() if mode is Mode.ISOLATED else store
        self._mode = mode
        self._split = split
        self._floor = floor
        space = digest("split", split)
        self._situations = Situations()
        self._recall = Recall(self._store, space)
        self._transitions = Transitions(self._store, space)
        self._episodes = Episodes(self._store, space)
        self._trust = Trust(self._store, space)
        self.refused = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """At most `breadth` distinct candidates, best first."""
        if not self._admitted(context):
            return
        for prediction in self.candidates(context, breadth):
            emit(prediction)

    def candidates(self, context: Context, breadth: int) -> list[Prediction]:
        walk = self._situations.walk(context)
        alternatives: list[tuple[Situation, list[Ranked]]] = []
        for number, call in enumerate(context.calls, 1):
            situation = self._situations.situation(walk, call)
            ranked = self._ranked(_scope(context), situation)
            if not ranked:
                return []
            alternatives.append((situation, ranked))
            if number < len(context.calls):
                walk = self._situations.after(situation, Observation(situation.show(ranked[0].text)))
        return [each for each in _joined(alternatives)[:breadth] if each.confidence >= self._floor]

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        if self._mode is Mode.READ_ONLY or not self._admitted(context):
            return
        scope = _scope(context)
        self._store.add(_owner(scope), self._split.encode())
        walk = self._situations.walk(context)
        for call, observation in zip(context.calls, observations, strict=False):
            situation = self._situations.situation(walk, call)
            self._learn(scope, situation, situation.hide(observation.text))
            walk = self._situations.after(situation, observation)

    def cleared(self) -> Memory:
        """The same memory, knowing nothing."""
        return self._with(Store(), Mode.READ_WRITE)

    def forked(self) -> Memory:
        """The same memory, knowing the same; what it learns stays its own."""
        return self._with(self._store.fork(), Mode.READ_WRITE)

    def _with(self, store: Store, mode: Mode) -> Memory:
        return Memory(store, mode=mode, split=self._split, floor=self._floor)

    def _guesses(self, scope: str, situation: Situation) -> list[Guess]:
        """All guesses; where one is certain, the looser ones are left out."""
        keys = (
            self._recall.keys(scope, situation),
            self._transitions.keys(situation),
            self._episodes.keys(scope, situation),
        )
        self._store.prefetch([key for each in keys for key in each])
        found = list(self._recall.guesses(scope, situation))
        certain = [guess for guess in found if guess.certain]
        if certain:
            return certain
        if any(self._confidence(situation, guess) >= _TRUSTED for guess in found):
            return found
        return [*found, *self._transitions.guesses(situation), *self._episodes.guesses(scope, situation)]

    def _ranked(self, scope: str, situation: Situation) -> list[Ranked]:
        ranked = self._believed(situation, self._guesses(scope, situation))
        if ranked:
            first = ranked[0]
            settled = self._trust.settled(first.source, situation.reading.name, first.confidence)
            ranked[0] = Ranked(first.text, first.source, settled)
        return _bounded(sorted(ranked, key=lambda each: each.confidence, reverse=True))

    def _believed(self, situation: Situation, guesses: Sequence[Guess]) -> list[Ranked]:
        """Distinct texts, each with the confidence of its best guess; best first."""
        best: dict[str, Ranked] = {}
        for guess in guesses:
            confidence = self._confidence(situation, guess)
            known = best.get(guess.text)
            if known is None or confidence > known.confidence:
                best[guess.text] = Ranked(guess.text, guess.source, confidence)
        return sorted(best.values(), key=lambda each: each.confidence, reverse=True)

    def _confidence(self, situation: Situation, guess: Guess) -> float:
        prior = guess.prior
        if situation.touch.volatile:
            prior = 0.05
        elif situation.changes and not guess.certain:
            prior = 0.3
        return self._trust.confidence(*_kind(situation, guess), prior)

    def _learn(self, scope: str, situation: Situation, text: str) -> None:
        reading = situation.reading
        guesses = self._guesses(scope, situation)
        for first in self._believed(situation, guesses)[:1]:
            self._trust.settle(first.source, reading.name, first.confidence, first.text == text)
        for guess in guesses:
            self._trust.record(*_kind(situation, guess), guess.text == text)
        self._recall.learn(scope, situation, text)
        if not any(guess.certain for guess in guesses):
            self._transitions.learn(situation, text)
            self._episodes.learn(scope, situation, text)

    def _admitted(self, context: Context) -> bool:
        owners = self._store.page(_owner(_scope(context))).cells
        if all(owner == self._split.encode() for owner in owners):
            return True
        self.refused += 1
        return False


def _kind(situation: Situation, guess: Guess) -> tuple[str, tuple[object, ...], str, str]:
    """What `Trust` tells apart. What depends on time or chance has to earn trust for each class of calls.

    So has what is known of other states about a call that changes something.
    """
    reading = situation.reading
    if situation.touch.volatile:
        return f"{guess.source} volatile {reading.group}", (), reading.name, reading.group
    if not guess.certain and situation.changes:
        return f"{guess.source} again {reading.name}", (), reading.name, reading.group
    return guess.source, guess.features, reading.name, reading.group


def _scope(context: Context) -> str:
    return context.image or context.task_id


def _owner(scope: str) -> bytes:
    return digest("owner", scope)


def _bounded(ranked: list[Ranked]) -> list[Ranked]:
    """Different texts can not be right together: what is left for the next ones is what the first ones leave."""
    left = 1.0
    bounded: list[Ranked] = []
    for each in ranked:
        confidence = min(each.confidence, left)
        left -= confidence
        bounded.append(Ranked(each.text, each.source, confidence))
    return bounded


def _joined(alternatives: Sequence[tuple[Situation, list[Ranked]]]) -> list[Prediction]:
    """For each call its best text; then each call's other texts, one exchanged at a time."""
    best = [ranked[0] for _, ranked in alternatives]
    choices = [best]
    for place, (_, ranked) in enumerate(alternatives):
        choices += [[*best[:place], other, *best[place + 1 :]] for other in ranked[1:]]
    joined = [_prediction([situation for situation, _ in alternatives], choice) for choice in choices]
    return sorted(joined, key=lambda each: each.confidence, reverse=True)


def _prediction(situations: Sequence[Situation], choice: Sequence[Ranked]) -> Prediction:
    confidence = 1.0
    for each in choice:
        confidence *= each.confidence
    weakest = min(choice, key=lambda each: each.confidence)
    texts = [situation.show(each.text) for situation, each in zip(situations, choice, strict=True)]
    return Prediction(tuple(Observation(text) for text in texts), weakest.source, confidence)
