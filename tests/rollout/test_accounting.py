"""The books of a run: nothing is counted twice, and the advice follows the money."""

from __future__ import annotations

import json
import math

import pytest
from rich.console import Console

from obsspec.rollout.accounting import Account, Stage, verified_if_finished
from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.attempts import Attempt, Drop, Seconds
from obsspec.rollout.collector import Verdict
from obsspec.train.account_table import account_table
from obsspec.values import StopReason
from tests.rollout.collecting import Gauge, Plan, Task, Trouble, collect
from tests.rollout.test_async_collector import engine, everything, job, team

pytestmark = pytest.mark.anyio


def attempt(reward: float = 0.0, drop: Drop | None = None, loop_s: float = 10.0) -> Attempt:
    made = Attempt(job(Task("t", Gauge()), "r"), 1, drop, seconds=Seconds(loop=loop_s, tools=2.0, setup=1.0))
    made.verdict = Verdict(reward)
    return made


async def test_the_published_example() -> None:
    """1,000 x 0.95 x 0.98 x 0.60 x 0.90 = 503."""
    account = Account()
    for drop, count in ((Drop.ERROR, 50), (Drop.UNSCORED, 19), (Drop.STALE, 56)):
        for _ in range(count):
            account.dropped(attempt(drop=drop))
    for _ in range(186):
        account.delivered([attempt(1.0), attempt(1.0)])
    for _ in range(503):
        account.delivered([attempt(1.0)])
    factors = [round(factor, 2) for factor in account.factors().values()]
    assert factors == [0.95, 0.98, 0.60, 0.90]
    assert 1000 * math.prod(account.factors().values()) == pytest.approx(503)


async def test_a_group_of_equal_rewards_teaches_nothing_and_a_group_of_one_is_no_group() -> None:
    account = Account()
    account.delivered([attempt(1.0), attempt(1.0), attempt(1.0)])
    account.delivered([attempt(1.0), attempt(0.0), attempt(0.0, Drop.STALE)])
    account.delivered([attempt(0.0)])
    assert (account.used, account.lost[Stage.SIGNAL]) == (3, 3)


async def test_signal_is_what_is_learnt_from_and_not_what_the_verifier_says() -> None:
    """The verifier is content with both, but one never ended; and the other way round."""
    ended, at_limit = attempt(1.0), attempt(1.0)
    ended.trajectory.stop = StopReason.FINAL
    at_limit.trajectory.stop = StopReason.TURN_LIMIT
    failed = attempt(0.0)
    failed.trajectory.stop = StopReason.FINAL
    account = Account()
    account.delivered([ended, at_limit], verified_if_finished)
    assert (account.used, account.lost[Stage.SIGNAL]) == (2, 0)
    account.delivered([failed, at_limit], verified_if_finished)
    assert (account.used, account.lost[Stage.SIGNAL]) == (2, 2)


async def test_the_advice_is_where_the_seconds_are_and_not_the_lowest_factor() -> None:
    """Ten rollouts that fail at once are cheap; two that ended and were too old are not."""
    account = Account()
    for _ in range(10):
        account.dropped(attempt(drop=Drop.ERROR, loop_s=2.0))
    for _ in range(2):
        account.dropped(attempt(drop=Drop.STALE, loop_s=100.0))
    account.delivered([attempt(1.0)])
    advice = account.improvement()
    assert advice is not None
    assert min(account.factors(), key=lambda stage: account.factors()[stage]) is Stage.COMPLETION
    assert (advice.stage, advice.lost, advice.lost_s) == (Stage.FRESHNESS, 2, 202.0)
    assert advice.share == pytest.approx(202 / (202 + 10 * 3 + 11))
    assert "freshness 0.33: 2 rollouts" in str(advice)


async def test_without_losses_there_is_no_advice() -> None:
    account = Account()
    assert account.improvement() is None
    account.delivered([attempt(1.0), attempt(0.0)])
    assert account.improvement() is None
    assert math.prod(account.factors().values()) == 1.0


async def test_the_seconds_are_those_of_the_clock() -> None:
    """One after the other: 3 turns of 1 s and a tool of 4 s each; 2 s of set-up beside the first; a verifier of 5 s."""
    async with AsyncCollector(engine(), 1, 1).collect([team(2, setup_s=2.0, tool_s=4.0, verify_s=5.0)]) as found:
        await everything(found)
    spent = found.account.spent
    assert (spent.tools, spent.setup, spent.verify) == (2 * 3 * 4.0, 2 * 2.0, 2 * 5.0)
    assert found.account.rollout_s == pytest.approx(2 * 2 * 1.0), "the first turn was there when the sandbox was"
    assert found.account.env_s == 24.0 + 4.0 + 10.0
    assert spent.room == pytest.approx(5.0), "the second waited for the verifier of the first"
    assert found.account.wall_s == pytest.approx(2 + 2 + 12 + 5 + 2 + 2 + 12 + 5)


@pytest.mark.parametrize("seed", range(4))
async def test_the_funnel_multiplies_to_what_is_used(seed: int) -> None:
    rough = Trouble(engine=0.05, setup=0.1, tool=0.05, verify=0.1)
    plan = Plan(seed, groups=8, retries=1, max_staleness=1, updates=(1, 5, 9, 20), trouble=rough)
    account = (await collect(plan)).account
    assert account.dispatched > 24
    assert math.prod(account.factors().values()) == pytest.approx(account.used / account.dispatched)
    assert 0 < account.used < account.dispatched


async def test_books_are_stored_and_gone_on_with() -> None:
    account = (await collect(Plan(1, groups=3, trouble=Trouble(tool=0.1)))).account
    account.train_s = 12.5
    stored = json.loads(json.dumps(account.to_json()))
    assert (stored["C_train"], stored["improve_first"]) == (12.5, str(account.improvement()))
    assert Account.from_json(stored) == account


async def test_books_that_were_stored_in_mid_flight_are_gone_on_with_as_if_the_rest_was_cancelled() -> None:
    account = Account(dispatched=5)
    account.delivered([attempt(1.0), attempt(0.0)])
    gone_on = Account.from_json(json.loads(json.dumps(account.to_json())))
    assert (gone_on.lost[Stage.COMPLETION], gone_on.drops[Drop.CANCELLED]) == (3, 3)
    assert math.prod(gone_on.factors().values()) == pytest.approx(gone_on.used / gone_on.dispatched)


async def test_the_table_says_it_all() -> None:
    account = Account(dispatched=3, train_s=40.0)
    account.dropped(attempt(drop=Drop.STALE))
    account.delivered([attempt(1.0), attempt(0.0)])
    console = Console(width=100, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(account_table(account))
    text = captured.get()
    for part in ("C_rollout", "C_train", "C_env", "40", "3 rollouts dispatched, 2 used", "freshness", "0.667"):
        assert part in text
    assert "improve first: freshness" in text
