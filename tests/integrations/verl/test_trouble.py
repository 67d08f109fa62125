"""Whatever goes wrong with a guess, a server or a tool: the batch is the tool agent's, and nothing is left running."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("verl")
pytest.importorskip("ray")

from tests.integrations.verl.batches import assert_equal, tool_turns, totals
from tests.integrations.verl.cluster import SEQUENTIAL
from tests.integrations.verl.stub import Seen

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

PROMPTS = ("Look around.", "List the files, please.")


def _both(cluster: Any, agent: str, prompts: tuple[str, ...] = PROMPTS) -> tuple[Any, list[Seen], list[Seen]]:
    """The speculative batch, after it was found equal, and the requests of both arms."""
    expected, _ = cluster.generate(SEQUENTIAL, prompts)
    plain = cluster.servers.seen()
    found, _ = cluster.generate(agent, prompts)
    assert_equal(expected, found)
    return found, plain, cluster.servers.seen()


def _committed(seen: list[Seen]) -> list[tuple[int, ...]]:
    return sorted(request.prompt_ids for request in seen if request.priority == 0)


def _branches(seen: list[Seen]) -> list[Seen]:
    return [request for request in seen if request.priority > 0]


def test_d01_a_rollback_ends_the_request_at_the_server(cluster: Any, oracle: Any) -> None:
    oracle.mode = "wrong"
    cluster.servers.set(token_s=0.012)  # most generations take longer than the tool
    found, plain, seen = _both(cluster, "trouble-wrong")
    assert totals(found)["rollback"] > 0
    assert _committed(seen) == _committed(plain)
    ends = [request.end for request in _branches(seen)]
    assert len(ends) == totals(found)["branches"]
    assert ends.count("cancelled") == totals(found)["discarded_midway"] > 0
    assert set(ends) <= {"cancelled", "done"}


def test_d03_a_server_that_is_slow_to_end_a_request_is_counted_until_it_has(cluster: Any, oracle: Any) -> None:
    oracle.mode = "wrong"
    cluster.servers.set(fault="deaf", token_s=0.012)
    _, plain, seen = _both(cluster, "trouble-deaf")
    assert _committed(seen) == _committed(plain)
    cancelled = [request for request in _branches(seen) if request.end == "cancelled"]
    assert cancelled
    assert all(request.seconds > 0.3 for request in cancelled)


def test_d02_of_several_branches_only_the_wrong_ones_end(cluster: Any, oracle: Any) -> None:
    del oracle
    for _ in range(2):
        found, _, seen = _both(cluster, "deep")
    assert totals(found)["match"] > 0
    assert "cancelled" not in {request.end for request in seen if request.priority == 0}


def test_d04_no_two_requests_have_one_name(cluster: Any, oracle: Any) -> None:
    oracle.mode = "wrong"
    _, _, seen = _both(cluster, "trouble-names")
    assert _branches(seen)
    assert len({request.request_id for request in seen}) == len(seen)


@pytest.mark.parametrize("fault", ["error", "nan", "abort", "empty"])
def test_a_branch_that_fails_is_made_again_by_the_loop(cluster: Any, oracle: Any, fault: str) -> None:
    """D-05, A-10, F-03: whatever a speculative request came to."""
    del oracle
    cluster.servers.set(fault=fault)
    found, plain, seen = _both(cluster, "language")
    assert _committed(seen) == _committed(plain)
    assert len(_branches(seen)) == tool_turns(found)


def test_g01_versions_are_those_of_kept_generations(cluster: Any, oracle: Any) -> None:
    cluster.servers.set(fault="version")
    oracle.mode = "wrong"
    found, _, seen = _both(cluster, "trouble-version")
    assert _branches(seen)
    assert set(found.non_tensor_batch["max_global_steps"]) == {3}
    oracle.mode = "right"
    kept, _ = cluster.generate("language", PROMPTS)
    assert totals(kept)["match"] == tool_turns(kept)
    assert set(kept.non_tensor_batch["min_global_steps"]) == {3}  # the first generation is never speculative
    assert set(kept.non_tensor_batch["max_global_steps"]) == {99}


@pytest.mark.parametrize("mode", ["down", "hang", "endless", "empty", "garbage"])
def test_h06_a_world_model_in_trouble_costs_no_rollout(cluster: Any, oracle: Any, mode: str) -> None:
    oracle.mode = mode
    asked = oracle.asked
    found, plain, seen = _both(cluster, f"trouble-{mode}")
    assert oracle.asked > asked
    assert _branches(seen) == []
    assert _committed(seen) == _committed(plain)
    assert totals(found)["match"] == 0


def test_h06_a_world_model_that_is_not_there_costs_no_rollout(cluster: Any, oracle: Any) -> None:
    del oracle
    found, _, seen = _both(cluster, "down")
    assert _branches(seen) == []
    assert totals(found)["failed"] + totals(found)["gated"] == tool_turns(found)


@pytest.mark.parametrize(
    "turns",
    [
        ("fail", "ls", "hang", "cat notes.txt"),
        ("ls && hang", "fail && cat plan.txt", "mkdir out"),
        ("ls", "unknown", "ls && unknown", "mkdir out", "broken"),
        ("ls && cat notes.txt && wc -l notes.txt", "ls"),
    ],
    ids=["raising-and-timing-out", "beside-others", "malformed-and-unknown", "more-than-may-run"],
)
@pytest.mark.parametrize("agent", ["chain", "deep"])
def test_tools_in_trouble_are_the_same_to_both_arms(
    cluster: Any, oracle: Any, agent: str, turns: tuple[str, ...]
) -> None:
    del oracle
    script = ("\n".join(["Do this.", "run:", *turns]),)
    _both(cluster, agent, script)
    _both(cluster, agent, script)


def test_f01_a_rollout_that_fills_its_response_ends_where_it_would(cluster: Any, oracle: Any) -> None:
    """The last answers overflow: nothing is asked on them, by either arm."""
    del oracle
    script = ("\n".join(["Do this.", "run:", *["long"] * 12]),)
    for agent in ("chain", "deep", "deep"):
        found, plain, seen = _both(cluster, agent, script)
        ids = found.batch["attention_mask"][0][-1024:].sum().item()
        assert ids > 700
        assert len(plain) < 12
        assert max(len(request.prompt_ids) for request in seen) <= max(len(request.prompt_ids) for request in plain)


def test_f01_a_prediction_that_overflows_starts_nothing(cluster: Any, oracle: Any) -> None:
    """Only the prediction is too long: the answer fits, and the rollout goes on."""
    oracle.mode = "huge"
    script = ("\n".join(["Do this.", "run:", "long", "long", *["mkdir out"] * 5, "mkdir big"]),)
    found, plain, seen = _both(cluster, "trouble-huge", script)
    lengths = sorted({len(request.prompt_ids) for request in plain})
    assert 1024 - 80 <= lengths[-1] - lengths[0] < 1024  # 80 characters instead of none would not fit
    assert totals(found)["gated"] == 2 * len(found)  # what is too long to be written is no prediction
    assert totals(found)["rollback"] == len(found)
    assert totals(found)["match"] == tool_turns(found) - 3 * len(found)
    assert max(len(request.prompt_ids) for request in _branches(seen)) == lengths[-2]


def test_h03_a_rollout_and_its_branches_stay_on_one_replica(cluster: Any, oracle: Any) -> None:
    del oracle
    prompts = tuple(f"Look at number {number}." for number in range(4))
    cluster.generate("chain", prompts, n=1)
    homes: dict[tuple[int, ...], set[int]] = {}
    for server, (seen, _) in enumerate(cluster.servers.reports()):
        for request in seen:
            homes.setdefault(request.prompt_ids[:18], set()).add(server)
    assert len(homes) == len(prompts)
    assert all(len(servers) == 1 for servers in homes.values())
    assert set().union(*homes.values()) == {0, 1}
