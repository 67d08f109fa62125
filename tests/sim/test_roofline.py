"""The roofline: seconds of steps and back, and what a step is bound by."""

from __future__ import annotations

from itertools import product

import pytest

from obsspec.sim.roofline import H100, QWEN3, Device, Serving, StepCost, kv_tokens, step_cost
from obsspec.values import ConfigError

COSTS = (
    StepCost(0.003, 3e-8, 1e-5, 0.001, 2e-5),
    StepCost(0.001, 1e-7, 1e-4),  # many sequences are bound by arithmetic until their context has grown
    StepCost(overhead_s=0.01, token_s=1e-3),
    StepCost(sequence_s=0.002),
)


@pytest.mark.parametrize(("cost", "n", "context"), list(product(COSTS, (1, 7, 200), (0.0, 5e3, 4e5))))
def test_steps_is_the_inverse_of_seconds(cost: StepCost, n: int, context: float) -> None:
    for steps in (0.5, 30.0, 4000.0):
        assert cost.steps(n, context, cost.seconds(n, context, steps)) == pytest.approx(steps, rel=1e-9)


@pytest.mark.parametrize(("cost", "n"), list(product(COSTS, (1, 40))))
def test_many_steps_take_as_long_as_one_after_the_other(cost: StepCost, n: int) -> None:
    context, one_by_one = 1000.0, 0.0
    for step in range(500):
        one_by_one += cost.step(n, context + n * (step + 0.5))  # the middle of a step stands for it
    assert cost.seconds(n, context, 500) == pytest.approx(one_by_one, rel=1e-6)


def test_a_step_is_bound_by_memory_or_by_arithmetic() -> None:
    cost = step_cost(QWEN3["8B"], H100, 2, Serving(1.0, 1.0, 0.0, 0.0))
    assert cost.step(1, 0.0) == pytest.approx(2 * 8.2e9 / 6.7e12)
    assert cost.step(1, 0.0, 4095) == pytest.approx(4096 * 2 * 8.2e9 / (2 * 989e12))
    assert step_cost(QWEN3["32B"], H100, 2, Serving()).step(1, 0.0) > 3 * step_cost(
        QWEN3["8B"], H100, 2, Serving()
    ).step(1, 0.0)


def test_what_can_not_be_is_said() -> None:
    with pytest.raises(ConfigError, match="negative"):
        StepCost(weights_s=-1)
    with pytest.raises(ConfigError, match="some time"):
        StepCost()
    with pytest.raises(ConfigError, match="32B does not fit on 1 x small"):
        kv_tokens(QWEN3["32B"], Device("small", 1e12, 1e14, 24e9), 1)
