"""Learns which way of launching commands a harness uses, from what explains its outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from obsspec.world.shadow.launch import SHELLS, Launch, Shell, Wrapping, wrapping

FADE = 0.98  # old evidence counts less, so that a change of harness is followed
DOUBT = 3.0  # below this lead of the best over the next, others are worth trying
EARLY = 40  # so many tries may tell nothing before rest is taken where the best way is still open
REST = 64  # after tries that told nothing, at most so many occasions are passed over


class Harness:
    """Evidence for shells, and for each wrapping whether it is taken off. Pure state, shared by all rollouts."""

    def __init__(self) -> None:
        self._shells: dict[Shell, float] = dict.fromkeys(SHELLS, 0.0)
        self._shells[SHELLS[0]] = 0.1  # the usual one
        self._unwraps: dict[Wrapping, float] = defaultdict(float)
        self._fruitless = 0
        self._resting = 0

    def best(self, text: str) -> Launch:
        return Launch(max(self._shells, key=self._shells.__getitem__), self._unwraps[wrapping(text)] >= 0)

    def others(self, text: str) -> list[Launch]:
        """Every other way that would give the shell something different."""
        best = self.best(text)
        seen = {best.arguments(text)}
        found: list[Launch] = []
        for shell in sorted(SHELLS, key=self._shells.__getitem__, reverse=True):
            for unwrapped in (best.unwrapped, not best.unwrapped):
                launch = Launch(shell, unwrapped)
                arguments = launch.arguments(text)
                if arguments not in seen:
                    seen.add(arguments)
                    found.append(launch)
        return found

    def worth_trying(self, *, right: bool) -> bool:
        """Whether other ways should be tried on an action that the best one explains (`right`) or not."""
        if right and not self.doubtful:
            return False
        if self._resting and (right or not self.doubtful or self._fruitless > EARLY):
            self._resting -= 1
            return False
        return True

    @property
    def doubtful(self) -> bool:
        first, second = sorted(self._shells.values(), reverse=True)[:2]
        return first - second < DOUBT

    def record(self, text: str, right: Mapping[Launch, bool]) -> None:
        """Ways that were tried on one action, and whether each explains its output. Only differences count."""
        if len(set(right.values())) < 2:
            self._fruitless += 1
            self._resting = min(REST, 2 ** (self._fruitless // 4) - 1)
            return
        self._fruitless = self._resting = 0
        shells = {launch.shell for launch, ok in right.items() if ok}
        wrong = {launch.shell for launch in right} - shells
        if wrong:
            for shell in self._shells:
                self._shells[shell] *= FADE
            for shell in shells:
                self._shells[shell] += 1.0 / len(shells)
        kind = wrapping(text)
        if kind is not Wrapping.NONE:
            taken_off = {launch.unwrapped for launch, ok in right.items() if ok}
            if len(taken_off) == 1:
                self._unwraps[kind] = self._unwraps[kind] * FADE + (1.0 if taken_off.pop() else -1.0)
