"""Sequential and speculative rollouts are equal token for token, whatever happens and in whatever order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from obsspec.testing import prove
from obsspec.testing.episodes import draw_episode
from obsspec.values import Outcome


def test_2500_random_episodes_are_equal_and_quiescent() -> None:
    tally = prove.Tally()
    prove.run_episodes(range(2500), tally)
    assert tally.failures == {}
    assert min(tally.outcomes[outcome] for outcome in Outcome) > 40
    assert set(tally.settings) == {f"{depth}/{breadth}" for depth in range(5) for breadth in range(5)}
    assert set(tally.realized_depth) == set(range(5))
    assert set(tally.realized_breadth) == set(range(6)), "one of four was replaced"
    assert {"final", "turn_limit", "context_limit", "cut", "empty", "engine_error", "sandbox_error"} <= set(tally.stops)
    assert tally.cancelled > 100
    assert tally.impatient > 100


def test_an_episode_is_a_function_of_its_seed() -> None:
    assert draw_episode(7) == draw_episode(7)
    assert draw_episode(7) != draw_episode(32)


def test_prove_writes_its_counts_and_names_failing_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prove.json"
    assert prove.main(["--episodes", "20", "--seed", "100", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["episodes"] == 20
    assert "20/20 episodes equal and quiescent" in capsys.readouterr().out
    monkeypatch.setattr("obsspec.testing.audit.differences", lambda a, b: ["ids"])
    assert prove.main(["--episodes", "3", "--seed", "100"]) == 1
    assert "FAILED --seed 101 --episodes 1: equality: ids" in capsys.readouterr().out
