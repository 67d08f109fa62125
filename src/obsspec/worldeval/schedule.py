"""Which rollouts share a memory, and in which order they are seen: the three protocols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from obsspec.worldeval.rows import Entry

GROUP = 16


class Protocol(StrEnum):
    """When everything that was learnt is forgotten."""

    COLD = "cold"  # before each rollout
    GROUP = "group"  # before each group: up to 16 rollouts of one task
    EPOCHS = "epochs"  # never: recorded order


@dataclass(frozen=True, slots=True)
class Item:
    """One rollout to evaluate; `test` False: only learnt from."""

    entry: Entry
    test: bool = True


def scopes(rollouts: Sequence[Entry], protocol: Protocol, test_share: float, split_seed: int) -> Iterator[list[Item]]:
    """Rollouts that share a memory, each list in order. Below a `test_share` of 1, tasks are split by their name.

    Training tasks come first where memory lasts that long; where it does not, they teach nothing and are left out.
    """
    items = [Item(entry, is_test(entry.task, test_share, split_seed)) for entry in rollouts]
    if protocol is Protocol.EPOCHS:
        yield [item for item in items if not item.test] + [item for item in items if item.test]
        return
    tested = [item for item in items if item.test]
    if protocol is Protocol.COLD:
        yield from ([item] for item in tested)
        return
    by_task: dict[str, list[Item]] = {}
    for item in tested:
        by_task.setdefault(item.entry.task, []).append(item)
    for members in by_task.values():
        yield from (members[start : start + GROUP] for start in range(0, len(members), GROUP))


def is_test(task: str, test_share: float, split_seed: int) -> bool:
    """A function of the task's name and the seed alone, so that every file and machine splits alike."""
    digest = blake2b(f"{split_seed}/{task}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < test_share * 2**64
