"""For engines that are not bit-exact: do both arms sample from the same distribution?

Paired sign-flip permutation tests on per-rollout statistics (Good, Permutation, Parametric and Bootstrap Tests of
Hypotheses): if both arms draw from the same law, the sign of each pair's difference is a fair coin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from obsspec.compare.summary import Pair
from obsspec.rollout.collector import RolloutResult

FLIPS = 20_000
LEVEL = 0.001  # after Bonferroni correction: a false alarm in one of a thousand comparisons
FEWEST = 14  # with fewer differing pairs no p-value can fall below the level


def _mean_logprob(result: RolloutResult) -> float:
    trajectory = result.trajectory
    sampled = [x for x, kept in zip(trajectory.logprobs, trajectory.mask, strict=True) if kept]
    return sum(sampled) / len(sampled) if sampled else 0.0


STATISTICS: dict[str, Callable[[RolloutResult], float]] = {
    "mean logprob": _mean_logprob,
    "sampled tokens": lambda result: float(sum(result.trajectory.mask)),
    "turns": lambda result: float(len(result.trajectory.turns)),
    "reward": lambda result: result.verdict.reward,
}


def p_values(pairs: Sequence[Pair]) -> dict[str, float]:
    """Two-sided p-value per statistic; 1.0 where no pair differs."""
    return {
        name: _sign_flip([of(pair.speculative) - of(pair.sequential) for pair in pairs])
        for name, of in STATISTICS.items()
    }


def same_distribution(p: dict[str, float]) -> bool:
    return all(value >= LEVEL / len(p) for value in p.values())


def _sign_flip(differences: Sequence[float]) -> float:
    data = np.asarray(differences, dtype=np.float64)
    data = data[data != 0]
    if not len(data):
        return 1.0
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (FLIPS, len(data)))
    observed = abs(float(data.sum()))
    reached = int((np.abs((signs * data).sum(axis=1)) >= observed - 1e-12).sum())
    return (reached + 1) / (FLIPS + 1)
