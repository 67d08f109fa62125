"""A call in its situation: everything the memories look at, worked out once, and what carries over to the next call."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from obsspec.values import Context, Exchange, Observation, ToolCall
from obsspec.world.effects import START, ToolKind
from obsspec.world.memory.calls import Reading, read
from obsspec.world.memory.digests import digest
from obsspec.world.memory.state import State
from obsspec.world.memory.touched import Touched, directory_after, touched

COUNTER = "\x02"
LIKELY = 4  # bytes
_COUNTED = re.compile(r"\b(In|Out) ?\[(\d+)\]")  # IPython numbers its inputs and outputs


@dataclass(frozen=True, slots=True)
class Past:
    """One call before this one with its observation: `text` has the counter of its tool taken out."""

    reading: Reading
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A rollout up to some point. `seen`: what calls answered, by call and the state they saw; `said`: by call, with
    what it likely saw."""

    state: State = field(default_factory=State)
    cwd: str | None = START
    seen: Mapping[bytes, str] = field(default_factory=dict[bytes, str])
    said: Mapping[bytes, tuple[bytes, str]] = field(default_factory=dict[bytes, tuple[bytes, str]])
    recent: tuple[Past, ...] = ()
    ahead: int = 0  # IPython's number minus ours: it counts what was run before the rollout, too


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """`sight` is the digest of the state that the call sees, `likely` that of what has likely changed of it."""

    reading: Reading
    touch: Touched
    sight: bytes
    likely: bytes
    number: int  # of calls of this tool so far, this one included
    walk: Walk

    @property
    def counter(self) -> int:
        return self.number + self.walk.ahead

    @property
    def changes(self) -> bool:
        """It may change something, and that matters here: it was made before in this rollout, or its tool is neither a
        shell nor an interpreter, so that what it may change is likely what it answers about."""
        if self.touch.writes == frozenset():
            return False
        return self.reading.kind is ToolKind.OTHER or self.reading.call in self.walk.said

    def hide(self, text: str) -> str:
        """The observation without what only counts calls."""
        if self.reading.kind is not ToolKind.PYTHON or COUNTER in text:
            return text
        number = str(self.counter)
        return _COUNTED.sub(lambda found: f"{found[1]}[{COUNTER}]" if found[2] == number else found[0], text)

    def show(self, text: str) -> str:
        return text.replace(f"[{COUNTER}]", f"[{self.counter}]") if self.reading.kind is ToolKind.PYTHON else text

    def ahead_after(self, text: str) -> int:
        """The largest number shown is that of the input itself; others belong to earlier ones."""
        if self.reading.kind is not ToolKind.PYTHON:
            return self.walk.ahead
        shown = [int(found[2]) for found in _COUNTED.finditer(text)]
        return max(shown) - self.number if shown else self.walk.ahead


RECENT = 12


class Situations:
    """Follows rollouts call by call. What was worked out for a prefix of a history is kept for the next question."""

    def __init__(self, kept: int = 4096) -> None:
        self._start = Walk()
        self._kept = kept
        self._walks: OrderedDict[tuple[int, int], tuple[Walk, Exchange, Walk]] = OrderedDict()

    def walk(self, context: Context) -> Walk:
        walk = self._start
        for exchange in context.history:
            walk = self._step(walk, exchange)
        return walk

    def situation(self, walk: Walk, call: ToolCall) -> Situation:
        reading = read(call)
        touch = touched(call, reading, walk.cwd)
        sight = walk.state.seen_by(touch)
        likely = walk.state.likely_seen_by(touch)
        if reading.kind is ToolKind.SHELL and walk.cwd != START:
            sight = digest(sight, walk.cwd or "unknown")
        return Situation(
            reading,
            touch,
            sight,
            digest(likely)[:LIKELY],
            walk.state.calls.get(reading.name, 0) + 1,
            walk,
        )

    def after(self, situation: Situation, observation: Observation) -> Walk:
        walk, reading = situation.walk, situation.reading
        text = situation.hide(observation.text)
        return Walk(
            walk.state.after(reading.name, reading.text, situation.touch, loose=reading.kind is ToolKind.SHELL),
            directory_after(reading, walk.cwd, situation.touch, "No such file" in text or "Not a directory" in text),
            {**walk.seen, reading.call + situation.sight: text},
            {**walk.said, reading.call: (situation.likely, text)},
            (*walk.recent[1 - RECENT :], Past(reading, text)),
            situation.ahead_after(observation.text),
        )

    def _step(self, walk: Walk, exchange: Exchange) -> Walk:
        key = (id(walk), id(exchange))
        kept = self._walks.get(key)  # the entry holds both objects, so their ids are not used again
        if kept is not None:
            self._walks.move_to_end(key)
            return kept[2]
        before = walk
        for call, observation in zip(exchange.calls, exchange.observations, strict=False):
            walk = self.after(self.situation(walk, call), observation)
        self._walks[key] = (before, exchange, walk)
        if len(self._walks) > self._kept:
            self._walks.popitem(last=False)
        return walk
