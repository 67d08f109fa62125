"""Slots and snapshots are chosen so that prefixes are not read twice."""

from __future__ import annotations

from obsspec.policy.slots import GAIN, Placement, SlotTable, common_prefix
from obsspec.values import Tokens


def tokens(start: int, count: int) -> Tokens:
    return tuple(range(start, start + count))


ONE, TWO, THREE = tokens(1000, 200), tokens(2000, 200), tokens(3000, 200)
FRAME, OTHER = tokens(50, 10), tokens(70, 10)


def table(count: int = 2, keep: int = 4) -> SlotTable:
    return SlotTable(count, keep)


def run(slots: SlotTable, prompt: Tokens, *, speculative: bool = False) -> Placement:
    """Places the prompt, and is done with it at once."""
    placement = slots.place(prompt, speculative=speculative)
    assert placement is not None
    slots.release(placement.slot, prompt)
    return placement


def test_common_prefix() -> None:
    assert common_prefix((), (1,)) == 0
    assert common_prefix((1, 2, 3), (1, 2)) == 2
    assert common_prefix((1, 2, 3), (1, 4, 3)) == 1
    assert common_prefix((9,), (1,)) == 0


def test_a_prompt_returns_to_the_slot_that_holds_its_prefix() -> None:
    slots = table()
    first, second = run(slots, ONE), run(slots, TWO)
    assert {first.slot, second.slot} == {0, 1}
    assert run(slots, (*ONE, *FRAME)) == first
    assert run(slots, (*TWO, *FRAME)) == second
    assert run(slots, (*ONE, *OTHER)) == first  # after a rollback: the wrong frame is dropped, nothing is copied


def test_busy_slots_are_not_used() -> None:
    slots = table()
    assert slots.place(ONE, speculative=False) is not None
    assert slots.place(ONE, speculative=False) is not None
    assert slots.place(ONE, speculative=False) is None
    slots.release(0, ONE)
    again = slots.place(TWO, speculative=False)
    assert again is not None
    assert again.slot == 0


def test_a_prefix_that_would_be_lost_is_saved_and_comes_back() -> None:
    slots = table()
    run(slots, ONE)
    run(slots, TWO)
    third = run(slots, THREE)
    assert third.slot == 0  # the one that was not used for the longest time
    assert third.save is not None
    back = run(slots, (*ONE, *FRAME))
    assert back.restore == third.save
    assert back.slot == 1
    assert back.save is not None  # what slot 1 held, for the second rollout


def test_short_or_covered_content_is_not_worth_a_snapshot() -> None:
    slots = table(count=1)
    run(slots, tokens(1, GAIN - 1))
    assert run(slots, ONE).save is None
    saved = run(slots, TWO).save
    assert saved is not None
    assert run(slots, ONE).restore == saved
    assert run(slots, TWO).save is None  # ONE is in a snapshot already


def test_the_end_of_a_wrong_branch_is_not_saved() -> None:
    slots = table(count=1)
    run(slots, (*ONE, *tokens(9000, 150)))
    assert run(slots, (*ONE, *FRAME)) == Placement(0)


def test_once_siblings_were_seen_a_prefix_is_saved_before_it_gets_busy() -> None:
    slots = table(count=3)
    run(slots, ONE)
    first = slots.place((*ONE, *FRAME), speculative=True)
    second = slots.place((*ONE, *OTHER), speculative=True)
    assert first == Placement(0)  # nothing is copied as long as nobody else asks for the prefix
    assert second is not None
    assert second.restore is None
    slots.release(0, (*ONE, *FRAME))
    slots.release(second.slot, ())
    first = slots.place((*ONE, *FRAME, *TWO), speculative=True)
    second = slots.place((*ONE, *FRAME, *THREE), speculative=True)
    assert first is not None
    assert second is not None
    assert first.slot == 0
    assert first.save is not None
    assert second.restore == first.save
    assert second.slot != first.slot


def test_a_committed_prompt_sees_that_a_discarded_branch_has_its_prefix() -> None:
    slots = table()
    run(slots, ONE)
    assert slots.place((*ONE, *FRAME), speculative=True) == Placement(0)
    assert slots.wants_busy((*ONE, *OTHER))
    assert not slots.wants_busy(TWO)
    slots.release(0, ONE)
    assert not slots.wants_busy((*ONE, *OTHER))


def test_the_oldest_snapshots_are_dropped() -> None:
    slots = table(count=1, keep=2)
    names = [run(slots, tokens(1000 * i, 100)).save for i in range(1, 6)]
    assert names[0] is None
    assert list(slots.snapshots) == names[3:]
    assert slots.dropped == names[1:3]


def test_forgetting_drops_everything() -> None:
    slots = table(count=1)
    run(slots, ONE)
    saved = run(slots, TWO).save
    slots.forget()
    assert slots.dropped == [saved]
    assert run(slots, ONE) == Placement(0)
    assert not slots.snapshots


def test_a_snapshot_that_failed_is_not_used() -> None:
    slots = table(count=1)
    run(slots, ONE)
    saved = run(slots, TWO).save
    assert saved is not None
    slots.drop(saved)
    slots.drop(saved)
    assert run(slots, ONE).restore is None
    assert slots.dropped == [saved]
