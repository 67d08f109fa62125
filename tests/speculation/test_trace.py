"""What the gate decided and what every candidate came to survive the run folder."""

from __future__ import annotations

import json

import pytest

from obsspec.rollout.collector import RolloutResult, Verdict
from obsspec.rollout.records import from_record, to_record
from obsspec.speculation.decisions import What
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.testing import Move, always, run_virtual
from obsspec.testing.virtual_clock import Backend
from tests.core.scene import Played, Scene, answer, call, recite, says


def play(*moves: Move) -> Played:
    async def run() -> Played:
        scene = Scene(recite(*[call("ls")] * 12, answer()), says("a"), breadth=2, plan=always(*moves))
        scene.gate = ExpectedValueGate()
        return (await scene.both())[1]

    return run_virtual(run, backend=Backend.ASYNCIO)


def test_decisions_and_candidates_are_saved_and_loaded() -> None:
    played = play(Move.WRONG, Move.RIGHT)
    result = RolloutResult("t", "s", "g", played.trajectory, Verdict(1.0), played.report)
    record = json.loads(json.dumps(to_record(result)))
    assert from_record(record) == result
    assert {d.what for d in played.report.decisions} == {What.PREDICT, What.START}


def test_records_without_decisions_can_still_be_read() -> None:
    played = play(Move.RIGHT)
    record = to_record(RolloutResult("t", "s", "g", played.trajectory, Verdict(1.0), played.report))
    del record["speculation"]["decisions"]
    for attempt in record["speculation"]["attempts"]:
        del attempt["said"], attempt["kind"]
    loaded = from_record(record).speculation
    assert loaded is not None
    assert loaded.decisions == []
    assert [a.outcome for a in loaded.attempts] == played.outcomes


@pytest.mark.parametrize("moves", [(Move.RIGHT,), (Move.WRONG, Move.RIGHT), (Move.WRONG,)])
def test_a_turn_says_of_each_candidate_whether_it_started_and_whether_it_was_right(moves: tuple[Move, ...]) -> None:
    played = play(*moves)
    *speculable, last = played.report.attempts
    assert last.said == (), "no call can follow it"
    for attempt in speculable:
        assert len(attempt.said) == len(moves)
        assert [said.matched for said in attempt.said] == [move is Move.RIGHT for move in moves]
        assert sum(said.started for said in attempt.said) == attempt.branches
        assert attempt.would_match == (Move.RIGHT in moves)
        assert attempt.kind == "bash:ls"
    starts = [d for d in played.report.decisions if d.what is What.START]
    assert sum(d.allowed for d in starts) == sum(a.branches for a in played.report.attempts)
