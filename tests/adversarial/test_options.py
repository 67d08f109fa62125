"""Odd values of options are one-line errors before anything starts."""

from __future__ import annotations

import math

import pytest

from obsspec.sandbox.latency import LatencySpec
from obsspec.values import ConfigError


@pytest.mark.parametrize("text", ["lognormal:1,5000", "lognormal:1e308,5", "lognormal:1,89"])
def test_a_latency_whose_draws_are_no_numbers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not understood"):
        LatencySpec.parse(text)


@pytest.mark.parametrize("text", ["lognormal:0,0", "lognormal:0,1e300", "lognormal:1,80", "constant:1e308"])
def test_every_other_latency_draws_numbers(text: str) -> None:
    spec = LatencySpec.parse(text)
    assert all(math.isfinite(spec.draw(seed, call)) for seed in range(20) for call in range(20))
