"""Means, ratios and percentile-bootstrap intervals over pairs (Efron & Tibshirani, 1993)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval; the interval is (nan, nan) with fewer than two samples."""

    value: float
    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """The mean, nan of nothing."""
    return float(np.mean(values)) if len(values) else float("nan")


def share(part: int, whole: int) -> float:
    """part / whole, nan of nothing."""
    return part / whole if whole else float("nan")


def mean_estimate(values: Sequence[float]) -> Estimate:
    data = np.asarray(values, dtype=np.float64)
    return _estimate(mean(values), data[_resample(len(data))].mean(axis=1) if len(data) > 1 else None)


def share_estimate(parts: Sequence[float], wholes: Sequence[float]) -> Estimate:
    """sum(parts) / sum(wholes), resampled together: a share of all calls where calls of one task go together."""
    a, b = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    value = float(a.sum() / b.sum()) if b.any() else float("nan")
    if len(a) < 2:
        return _estimate(value, None)
    index = _resample(len(a))
    part, whole = a[index].sum(axis=1), b[index].sum(axis=1)
    return _estimate(value, part[whole > 0] / whole[whole > 0])


def reduction_estimate(sequential: Sequence[float], speculative: Sequence[float]) -> Estimate:
    """1 - mean(speculative) / mean(sequential), pairs resampled together; nan where nothing took any time."""
    a, b = np.asarray(sequential, dtype=np.float64), np.asarray(speculative, dtype=np.float64)
    if not a.any():
        return Estimate(float("nan"), float("nan"), float("nan"))
    value = 1 - mean(speculative) / mean(sequential)
    if len(a) < 2:
        return _estimate(value, None)
    index = _resample(len(a))
    before, after = a[index].mean(axis=1), b[index].mean(axis=1)
    return _estimate(value, 1 - after[before > 0] / before[before > 0])


def _resample(size: int) -> NDArray[np.intp]:
    return np.random.default_rng(0).integers(0, size, (RESAMPLES, size)) if size else np.zeros((0, 0), dtype=np.intp)


def _estimate(value: float, samples: Floats | None) -> Estimate:
    if samples is None:
        return Estimate(value, float("nan"), float("nan"))
    low, high = np.percentile(samples, (2.5, 97.5))
    return Estimate(value, float(low), float(high))
