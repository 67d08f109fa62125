"""Which slot of llama-server a prompt goes to: pure.

A slot is one sequence of the engine with the key-value cache of the tokens it last held. A prompt only pays for the
tokens after the prefix it shares with its slot. A *snapshot* is such a cache in a file: saved from an idle slot in
some 20 ms, loaded into another in some 15 ms, bit for bit, where reading the tokens again takes 20 ms each.

Snapshots are taken of what would be lost (a slot that is given to another rollout) and of what siblings will want: once
it has been seen that several speculative prompts continue one prefix at a time (breadth above 1), the prefix is saved
before the first of them makes its slot busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.values import Tokens

GAIN = 24  # tokens: copying fewer than this is no faster than reading them


@dataclass(slots=True)
class Slot:
    number: int
    held: Tokens = ()  # while it is busy: the prompt it works on
    busy: bool = False
    speculative: bool = False  # what it is busy with may be cancelled at any time
    used: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Use `slot`; before that, `save` what it holds under this name, then `restore` the snapshot of that name."""

    slot: int
    save: str | None = None
    restore: str | None = None


@dataclass(slots=True)
class SlotTable:
    """`count` slots and at most `keep` snapshots, two or more. Names in `dropped` may be deleted by the caller."""

    count: int
    keep: int
    slots: list[Slot] = field(init=False)
    snapshots: dict[str, Tokens] = field(init=False, default_factory=dict[str, Tokens])  # least recently used first
    dropped: list[str] = field(init=False, default_factory=list[str])
    _clock: int = field(init=False, default=0)
    _forks: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.slots = [Slot(number) for number in range(self.count)]

    def place(self, prompt: Tokens, *, speculative: bool) -> Placement | None:
        """Takes the idle slot, or the copy, that spares the most tokens; None while every slot is busy."""
        idle = [slot for slot in self.slots if not slot.busy]
        if not idle:
            return None
        self._forks |= speculative and self.wants_busy(prompt)
        slot = max(idle, key=lambda s: (common_prefix(s.held, prompt), -s.used))
        own = common_prefix(slot.held, prompt)
        restore = self._snapshot(prompt)
        if restore is not None and common_prefix(self.snapshots[restore], prompt) >= own + GAIN:
            slot, own = min(idle, key=lambda s: s.used), 0
            self.snapshots[restore] = self.snapshots.pop(restore)
        else:
            restore = None
        save = self._save(slot) if self._worth_saving(slot, own, speculative) else None
        self._clock += 1
        slot.busy, slot.speculative, slot.used, slot.held = True, speculative, self._clock, prompt
        return Placement(slot.number, save, restore)

    def release(self, number: int, held: Tokens) -> None:
        """The slot is idle again and holds these tokens, as far as is known."""
        self.slots[number].busy = False
        self.slots[number].held = held

    def drop(self, name: str) -> None:
        """The snapshot does not exist: it could not be saved or loaded, or is too old."""
        if self.snapshots.pop(name, None) is not None:
            self.dropped.append(name)

    def forget(self) -> None:
        """Every cached token is gone."""
        for slot in self.slots:
            slot.held = ()
        for name in list(self.snapshots):
            self.drop(name)

    def wants_busy(self, prompt: Tokens) -> bool:
        """Whether a slot that is busy with speculation shares much more with the prompt than all that is usable."""
        usable = [slot.held for slot in self.slots if not slot.busy] + list(self.snapshots.values())
        best = max((common_prefix(held, prompt) for held in usable), default=0)
        taken = [slot.held for slot in self.slots if slot.busy and slot.speculative]
        return any(common_prefix(held, prompt) >= best + GAIN for held in taken)

    def _snapshot(self, prompt: Tokens) -> str | None:
        return max(self.snapshots, key=lambda name: common_prefix(self.snapshots[name], prompt), default=None)

    def _worth_saving(self, slot: Slot, kept: int, speculative: bool) -> bool:
        loses_most = kept < len(slot.held) / 2
        siblings_follow = self._forks and speculative and kept >= GAIN
        return (loses_most or siblings_follow) and len(slot.held) >= GAIN and not self._is_covered(slot)

    def _is_covered(self, slot: Slot) -> bool:
        others = [other.held for other in self.slots if other is not slot and not other.busy]
        copies = [*self.snapshots.values(), *others]
        return any(common_prefix(copy, slot.held) > len(slot.held) - GAIN for copy in copies)

    def _save(self, slot: Slot) -> str:
        name = f"{slot.number}-{self._clock}"
        self.snapshots[name] = slot.held
        while len(self.snapshots) > self.keep:
            self.drop(next(iter(self.snapshots)))
        return name


def common_prefix(left: Tokens, right: Tokens) -> int:
    """The number of leading tokens that are equal."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:  # the usual case, at the speed of a comparison
        return limit
    return next(i for i in range(limit) if left[i] != right[i])
