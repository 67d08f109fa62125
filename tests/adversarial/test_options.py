"""Odd values of options are one-line errors before anything starts."""

from __future__ import annotations

import math

import pytest

from obsspec import cli
from obsspec.compare.settings import CompareSettings
from obsspec.sandbox.latency import LatencySpec
from obsspec.values import ConfigError, EngineError, SandboxError


@pytest.mark.parametrize("text", ["lognormal:1,5000", "lognormal:1e308,5", "lognormal:1,89"])
def test_a_latency_whose_draws_are_no_numbers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not understood"):
        LatencySpec.parse(text)


@pytest.mark.parametrize("text", ["lognormal:0,0", "lognormal:0,1e300", "lognormal:1,80", "constant:1e308"])
def test_every_other_latency_draws_numbers(text: str) -> None:
    spec = LatencySpec.parse(text)
    assert all(math.isfinite(spec.draw(seed, call)) for seed in range(20) for call in range(20))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("max_turns", 0),
        ("max_turn_tokens", 0),
        ("max_context", 0),
        ("tasks", 0),
        ("breadth", -1),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_its_option(option: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^--{option.replace('_', '-')} must be"):
        CompareSettings(**{option: value})


BROKEN = [
    (ConfigError("set x"), 2, "obsspec: set x"),
    (EngineError("the engine [/bin] is down"), 2, "obsspec: the engine [/bin] is down"),
    (ExceptionGroup("a", [ExceptionGroup("b", [SandboxError("no room")]), EngineError("late")]), 2, "obsspec: no room"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (BaseExceptionGroup("a", [BaseExceptionGroup("b", [KeyboardInterrupt()]), ValueError()]), 130, "interrupted"),
]


@pytest.mark.parametrize(("error", "status", "line"), BROKEN)
def test_what_went_wrong_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, line: str
) -> None:
    def app() -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    assert capsys.readouterr().err == f"{line}\n"


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def app() -> None:
        raise ExceptionGroup("a", [ConfigError("x"), ZeroDivisionError()])

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(ExceptionGroup):
        cli.main()
