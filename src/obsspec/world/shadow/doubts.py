"""Outcomes that are not explained: whether another way of launching commands would explain them."""

from __future__ import annotations

from dataclasses import replace

from obsspec.world.shadow.harness import Harness
from obsspec.world.shadow.rewrites import Rewrites
from obsspec.world.shadow.rooms import Rooms
from obsspec.world.shadow.trust import Changes
from obsspec.world.shadow.turns import Tried, run_of

MOST = 4  # outcomes kept until there is time for them


class Doubts:
    """What is found out is told to `harness`."""

    def __init__(self, rooms: Rooms, harness: Harness, rewrites: Rewrites) -> None:
        self._rooms = rooms
        self._harness = harness
        self._rewrites = rewrites
        self._kept: list[tuple[Tried, str]] = []

    def add(self, tried: Tried, truth: str, *, right: bool) -> None:
        """Only what is not explained, or as long as there is little evidence."""
        new = tried.signs.changed is Changes.NONE and len(self._kept) < MOST
        if new and self._harness.worth_trying(right=right):
            self._kept.append((tried, truth))

    async def settle(self) -> None:
        """Tries all that was kept. Raises `SandboxError`."""
        while self._kept:
            tried, truth = self._kept.pop()
            text, image = tried.command.text, tried.knowledge.image
            best, others = self._harness.best(text), self._harness.others(text)
            if best.arguments(text) != tried.command.arguments:
                continue
            commands = [replace(tried.command, arguments=launch.arguments(text)) for launch in others]
            ran = [command for command in commands if command.arguments is not None]
            printed = await self._rooms.probe(image, tried.place, [run_of(each, image) for each in ran])
            explained = {
                command.arguments: _same(self._rewrites.apply(one.text, command.script, command.shell), truth)
                for command, one in zip(ran, printed, strict=True)
            }
            right = {launch: explained.get(launch.arguments(text), False) for launch in others}
            self._harness.record(text, {best: _same(tried.text, truth), **right})


def _same(one: str, other: str) -> bool:
    """Formats may drop line ends."""
    return one.rstrip() == other.rstrip()
