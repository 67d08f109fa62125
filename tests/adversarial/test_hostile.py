"""Several rollouts beside each other, a world model that keeps no promise, and cancellation at any moment."""

from __future__ import annotations

from random import Random

import anyio
import pytest

from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.equality import differences
from obsspec.speculation.session import SpeculationSettings
from obsspec.testing.policy import Request, sample
from obsspec.testing.virtual_clock import Backend, run_virtual
from obsspec.values import FinishReason, Outcome, Priority, StopReason
from tests.adversarial.hostile import LIMITS, RENDERER, ROLLOUTS, Batch, script

SEEDS = 60
ATTEMPTED = (Outcome.MATCH, Outcome.ROLLBACK, Outcome.CANCEL)


def settings(seed: int, *, strict: bool = False) -> SpeculationSettings:
    return SpeculationSettings(seed % 4, 1 + seed // 4 % 4, 20.0, strict)


def check_accounts(batch: Batch, results: list[RolloutResult]) -> None:
    discarded = 0
    for result in results:
        report, trajectory = result.speculation, result.trajectory
        assert report is not None
        with_calls = sum(bool(turn.calls) for turn in trajectory.turns)
        with_calls += trajectory.stop is StopReason.SANDBOX_ERROR  # the turn on which the sandbox failed
        assert len(report.attempts) == with_calls
        assert all(a.branches <= settings(batch.seed).breadth for a in report.attempts)
        assert all(span.end_s is not None and span.fate is not None for span in report.spans)
        discarded += report.discarded_policy_tokens
    kept = sum(sum(result.trajectory.mask) for result in results)
    assert kept + discarded == batch.policy.tokens


@pytest.mark.parametrize("backend", list(Backend))
def test_a_hostile_world_model_changes_nothing(backend: Backend) -> None:
    outcomes: set[Outcome] = set()

    async def all_seeds() -> None:
        for seed in range(SEEDS):
            sequential, speculative = Batch(seed, None), Batch(seed, settings(seed))
            a, b = await sequential.run(), await speculative.run()
            assert [differences(x, y) for x, y in zip(a, b, strict=True)] == [[]] * ROLLOUTS, seed
            assert sequential.executed == speculative.executed, seed
            assert not any(speculative.left), seed
            check_accounts(speculative, b)
            outcomes.update(t.outcome for r in b if r.speculation for t in r.speculation.attempts)

    run_virtual(all_seeds, backend=backend)
    assert outcomes >= {Outcome.MATCH, Outcome.ROLLBACK, Outcome.CANCEL, Outcome.GATED}


@pytest.mark.parametrize("backend", list(Backend))
def test_cancelled_at_any_moment_nothing_is_left(backend: Backend) -> None:
    async def all_seeds() -> None:
        for seed in range(SEEDS):
            batch = Batch(seed, settings(seed))
            with anyio.move_on_after(Random(seed).randint(0, 80) / 4):
                await batch.run()
            assert not any(batch.left), seed

    run_virtual(all_seeds, backend=backend)


@pytest.mark.parametrize("strict", [True, False])
def test_e04_every_turn_is_what_the_weights_that_sampled_it_say(strict: bool) -> None:
    async def all_seeds() -> None:
        for seed in range(SEEDS):
            batch = Batch(seed, settings(seed, strict=strict), bump_s=Random(seed).choice((0.25, 1.0, 5.0)))
            results = await batch.run()
            assert not any(batch.left)
            check_accounts(batch, results)
            for result in results:
                _check_versions(result)

    run_virtual(all_seeds, backend=Backend.TRIO)


def _check_versions(result: RolloutResult) -> None:
    from obsspec.rollout.rules import RolloutRules

    rules = RolloutRules(RENDERER, LIMITS, result.seed)
    follow = rules.first(result.trajectory.instruction)
    for turn in result.trajectory.turns:
        assert follow.key is not None
        done = turn.completion
        request = Request(0, follow.key.prompt, follow.key.sampling, Priority.COMMITTED, done.weight_version)
        assert sample(script, request) == done
        assert done.finish_reason in FinishReason
        follow = rules.follow(turn.level, follow.key, done, turn.observations)
