"""Injected latency is a value: parsed with clear errors, drawn by (seed, call) alone."""

from __future__ import annotations

import statistics

import pytest

from obsspec.sandbox.latency import LatencySpec
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.sandbox.wire import seed_of
from obsspec.values import ConfigError


@pytest.mark.parametrize("text", ["constant:1.69", "uniform:0.5,2", "lognormal:0.29,1.2", "constant:0"])
def test_a_spec_survives_its_text_form(text: str) -> None:
    assert str(LatencySpec.parse(text)) == text


def test_a_bare_number_is_a_constant() -> None:
    assert LatencySpec.parse("1.5") == LatencySpec.parse("constant:1.5")


FORMS = ["", "fast", "normal:1,2", "constant:", "constant:-1", "constant:nan", "constant:1,2", "constant:1:2"]
RANGES = ["uniform:2", "uniform:3,1", "lognormal:1,inf", "lognormal:1,2,3"]


@pytest.mark.parametrize("text", FORMS + RANGES)
def test_nonsense_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LatencySpec.parse(text)
    assert "\n" not in str(caught.value)
    assert repr(text) in str(caught.value)


def test_draws_depend_on_seed_and_call_and_on_nothing_else() -> None:
    spec = LatencySpec.parse("lognormal:0.5,1")
    assert [spec.draw(7, call) for call in range(5)] == [
        LatencySpec.parse("lognormal:0.5,1").draw(7, call) for call in range(5)
    ]
    assert len({spec.draw(seed, call) for seed in range(5) for call in range(5)}) == 25


def test_draws_have_the_distribution_that_was_asked_for() -> None:
    lognormal = sorted(LatencySpec.parse("lognormal:0.5,1").draw(0, call) for call in range(2000))
    assert statistics.median(lognormal) == pytest.approx(0.5, rel=0.1)
    assert lognormal[int(0.8413 * 2000)] == pytest.approx(0.5 * 2.718, rel=0.15)
    uniform = [LatencySpec.parse("uniform:1,3").draw(0, call) for call in range(2000)]
    assert 1 < min(uniform) < 1.05
    assert 2.95 < max(uniform) < 3
    assert statistics.mean(uniform) == pytest.approx(2, rel=0.05)


def test_both_arms_of_a_pair_have_the_same_seed() -> None:
    spec = SandboxSpec(files=(FileSpec("a", b"\xff"),), image="task-1")
    assert seed_of(spec) == seed_of(SandboxSpec(files=(FileSpec("a", b"\xff"),), image="task-1"))
    assert seed_of(spec) != seed_of(SandboxSpec(files=(FileSpec("a", b"\xff"),), image="task-2"))
