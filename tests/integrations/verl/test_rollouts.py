"""verl's own manager, workers and balancer collect the same batches with speculation, sooner."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

from tests.integrations.verl.batches import assert_equal, tool_turns, totals
from tests.integrations.verl.cluster import SEQUENTIAL, SPECULATIVE

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

PROMPTS = ("Look around.", "List the files, please.", "What is in the notes?")


@pytest.mark.parametrize("agent", ["deep", "language", "chain", "off"])
def test_g01_every_batch_equals_that_of_the_tool_agent(cluster: Any, oracle: Any, agent: str) -> None:
    del oracle
    expected, _ = cluster.generate(SEQUENTIAL, PROMPTS)
    asked = len(cluster.servers.seen())
    first, _ = cluster.generate(agent, PROMPTS)
    cluster.servers.seen()
    second, _ = cluster.generate(agent, PROMPTS)
    seen = cluster.servers.seen()
    assert_equal(expected, first)
    assert_equal(expected, second)
    if agent == "off":
        assert len(seen) == asked
        assert {request.priority for request in seen} == {0}
    else:
        found = totals(second)
        assert found["match"] > 0
        assert found["match"] + found["rollback"] + found["cancel"] + found["gated"] + found["failed"] == tool_turns(
            second
        )
        assert any(request.priority > 0 for request in seen)


def test_speculation_that_hits_takes_fewer_seconds(cluster: Any, oracle: Any, capsys: Any) -> None:
    del oracle
    cluster.generate(SEQUENTIAL, PROMPTS)
    expected, sequential_s = cluster.generate(SEQUENTIAL, PROMPTS)
    found, speculative_s = cluster.generate("chain", PROMPTS)
    assert_equal(expected, found)
    share = totals(found)["match"] / tool_turns(found)
    assert share == 1.0
    with capsys.disabled():
        sys.stdout.write(f"\n{share:.0%} matched: {speculative_s / sequential_s:.2f} of the sequential time\n")


def test_the_loop_of_the_entry_point_is_registered_without_yaml(cluster: Any) -> None:
    expected, _ = cluster.generate(SEQUENTIAL, PROMPTS[:1])
    found, _ = cluster.generate(SPECULATIVE, PROMPTS[:1])
    assert_equal(expected, found)
    assert totals(found)["match"] >= 0
