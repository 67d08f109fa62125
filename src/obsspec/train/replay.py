"""Turns of a transition log as rounds of training: what is new, and what of before comes with it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from obsspec.train.encode import Example
from obsspec.train.transition_log import Follower
from obsspec.train.transitions import FilterRules, Reason, Transition, examples
from obsspec.train.world_settings import Order

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """`fresh` was never trained on; `again` was. `left_out` counts new turns by the rule that leaves them out.

    `position`: of the log behind the new turns. `step`: the latest of theirs.
    """

    fresh: list[Example]
    again: list[Example]
    left_out: Counter[Reason]
    position: Mapping[str, int]
    step: int


@dataclass(slots=True)
class Replay:
    """Goes through the log from `position`. Which rollouts come again is drawn from `random`, whose state is yours."""

    log: Path
    rules: FilterRules
    order: Order
    random: Random
    position: Mapping[str, int] = field(default_factory=dict[str, int])
    _follower: Follower = field(init=False)
    _past: dict[str, list[Transition]] = field(init=False, default_factory=dict[str, list[Transition]])

    def __post_init__(self) -> None:
        self._follower = Follower(self.log, self.position)
        if self.order is Order.MIXED and self.position:
            self._remember(self._before(self.position))

    def next_round(self, turns: int, patience_s: float, stop: Callable[[], bool]) -> Round | None:
        """Waits for so many new turns, or for `patience_s` after the last one. None when told to stop meanwhile.

        Without patience: what is there, None if nothing is.
        """
        new: list[Transition] = []
        heard = time.monotonic()
        while len(new) < turns:
            if stop():
                return None
            news = self._follower.poll(turns - len(new))
            if news.transitions or news.ended:
                heard = time.monotonic()
                new += news.transitions
            elif new and time.monotonic() - heard >= patience_s:
                break
            elif not patience_s:
                return None
            else:
                time.sleep(min(_POLL_S, patience_s))
        return self._round(new)

    def make_durable(self) -> None:
        """A position that was handed out is one of the log also after a power failure."""
        self._follower.make_durable()

    def _round(self, new: list[Transition]) -> Round:
        new.sort(key=lambda turn: turn.order)
        fresh, left_out = examples(new, self.rules)
        again: list[Example] = []
        if self.order is Order.MIXED:
            names = sorted(self._past)
            chosen = self.random.sample(names, min(len(names), len({turn.rollout for turn in new})))
            again, _ = examples((turn for name in chosen for turn in self._past[name]), self.rules)
            self._remember(new)
        step = max((turn.step for turn in new), default=0)
        return Round(fresh, again, left_out, self._follower.position, step)

    def _remember(self, turns: list[Transition]) -> None:
        for turn in turns:
            self._past.setdefault(turn.rollout, []).append(turn)

    def _before(self, position: Mapping[str, int]) -> list[Transition]:
        """All turns in front of the position, read again."""
        follower, found = Follower(self.log), list[Transition]()
        while (news := follower.poll()).transitions or news.ended:
            found += [turn for turn in news.transitions if turn.offset < position.get(turn.writer, 0)]
        return found
