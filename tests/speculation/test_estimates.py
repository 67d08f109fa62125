"""Durations, load and classes: what the gate's expectations rest on."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obsspec.speculation import estimates, load
from obsspec.speculation.classes import command_class
from obsspec.speculation.estimates import Estimates, Samples, later
from obsspec.speculation.load import LoadModel
from obsspec.values import ToolCall

SECONDS = st.floats(0.0, 1e4)


@given(st.lists(SECONDS, min_size=1, max_size=100))
def test_samples_are_points_of_the_latest_values(values: list[float]) -> None:
    samples = Samples((1.0,))
    for value in values:
        samples.add(value)
    latest = values[-estimates.WINDOW :]
    assert list(samples.points) == sorted(samples.points)
    assert set(samples.points) <= set(latest)
    assert len(samples.points) == min(len(latest), estimates.POINTS)


@given(st.lists(SECONDS, max_size=40), st.lists(SECONDS, max_size=40), st.floats(0.0, 100.0), st.integers(1, 4))
def test_no_more_is_hidden_than_a_turn_takes_nor_than_there_is_time(
    turns: list[float], tools: list[float], elapsed_s: float, depth: int
) -> None:
    known = Estimates()
    for turn in turns:
        known.generated(turn)
    for tool in tools:
        known.tool_ran("cat", tool)
    left = known.left_s(("cat",) * depth, elapsed_s)
    hidden = known.hidden_s(left)
    assert 0 <= hidden <= known.generation_s.mean * (1 + 1e-9) + 1e-12
    assert hidden <= sum(left) / len(left) * (1 + 1e-9) + 1e-12


def test_the_expectation_is_of_the_distribution_not_of_means() -> None:
    known = Estimates()
    for _ in range(16):
        known.generated(1.0)
        known.tool_ran("make", 0.0)
        known.tool_ran("make", 2.0)
    assert known.hidden_s(known.left_s(("make",), -1e-9)) == pytest.approx(0.5), "min of the means would be 1"


def test_a_tool_that_still_runs_is_not_one_of_the_short_ones() -> None:
    known = Estimates()
    for seconds in (0.1, 0.1, 0.1, 10.0):
        known.tool_ran("make", seconds)
    assert known.left_s(("make",), 0.5) == pytest.approx((9.5,))
    assert known.left_s(("make",), 20.0) == pytest.approx((10.0,))


def test_deeper_branches_have_the_tools_between_as_well() -> None:
    known = Estimates()
    for _ in range(4):
        known.tool_ran("cat", 1.0)
    assert known.left_s(("cat", "cat", "cat"), 0.25) == pytest.approx((2.75,) * 4)


def test_with_guards_the_tools_between_run_beside_each_other() -> None:
    known = Estimates()
    for _ in range(4):
        known.tool_ran("cat", 1.0)
        known.tool_ran("make", 3.0)
        known.tool_ran("cat&cat", 2.0)
    assert known.left_s(("cat", "make", "cat"), 0.25, guarded=True) == pytest.approx((3.0,) * 4)
    assert known.left_s(("make", "cat"), 0.25, guarded=True) == pytest.approx((2.75,) * 4)
    assert known.left_s(("cat&cat", "make"), 0.5, guarded=True) == pytest.approx((3.0,) * 4), "it is committed"
    assert known.left_s(("make", "cat&cat", "cat"), 1.0, guarded=True) == pytest.approx((5.0,) * 4), "not sent ahead"


def test_what_a_branch_lets_begin_is_hidden_too_as_far_as_there_is_time() -> None:
    known = Estimates()
    for _ in range(4):
        known.tool_ran("cat", 2.0)
        known.generated(0.5)
    assert known.then_s(("cat",)) == 2.0
    assert known.then_s(("cat&cat",)) == 2.0
    assert known.then_s(("cat", "cat&cat")) == 0.0
    left = known.left_s(("cat",), 0.0)
    assert known.hidden_s(left) == pytest.approx(0.5)
    assert known.hidden_s(left, 2.0) == pytest.approx(2.0), "no more than the wait that there is"
    assert known.hidden_s(known.left_s(("cat",), 1.9), 2.0) == pytest.approx(0.1)


def test_little_seen_classes_are_answered_by_all_together() -> None:
    known = Estimates()
    for _ in range(8):
        known.tool_ran("cat", 1.0)
    known.tool_ran("make", 100.0)
    assert known.tool_s.of("make").mean < 20
    for _ in range(2):
        known.tool_ran("make", 100.0)
    assert known.tool_s.of("make").mean == 100.0


def test_a_late_source_is_expected_later_and_later() -> None:
    known = Estimates()
    for _ in range(20):
        known.predicted("lm", 0.05, late=True)
    assert known.prediction_s("lm").mean == pytest.approx(0.1)
    assert known.prediction_s("memory/transition") is known.prediction_s("memory")
    known.tool_ran("cat", 0.08)
    left = later(known.left_s(("cat",), 0.0), known.prediction_s("lm").points)
    assert left == pytest.approx((0.0,) * 8), "not before the tool is done"


# Load ----------------------------------------------------------------------------------------------------------------


def simulate(a: float, b: float, crowds: list[int], tokens: int = 50) -> LoadModel:
    """Crowds of requests that start and end together, one after another."""
    model, now = LoadModel(), 0.0
    for crowd in crowds:
        for ticket in range(crowd):
            model.started(ticket, now)
        now += tokens * (a + b * crowd)
        for ticket in range(crowd):
            model.ended(ticket, now, tokens)
        now += 1.0
    return model


@given(st.floats(0.001, 0.1), st.floats(0.0, 0.1), st.integers(0, 1000))
def test_a_line_is_found(a: float, b: float, seed: int) -> None:
    random = Random(seed)
    model = simulate(a, b, [random.randint(1, 12) for _ in range(40)])
    for others in (0, 4, 10):
        assert model.token_s(others) == pytest.approx(a + b * (others + 1), rel=0.1)


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(0, 300)), max_size=60), st.integers(0, 50))
def test_the_fit_is_sane_whatever_is_measured(measured: list[tuple[float, int]], others: int) -> None:
    model, now = LoadModel(), 0.0
    for ticket, (seconds, tokens) in enumerate(measured):
        model.started(ticket, now)
        model.started(-ticket - 1, now)
        now += seconds
        model.ended(ticket, now, tokens)
    a, b = model.fit
    assert a >= -1e-12
    assert b >= 0
    assert model.token_s(others) > 0
    assert 0 <= model.taken(others) <= others


def test_an_engine_at_its_limit_takes_from_the_others_all_that_it_gives() -> None:
    model = simulate(0.0, 0.01, [4, 8, 12, 6] * 5)
    assert model.taken(9) == pytest.approx(0.9, abs=0.05)


def test_an_idle_engine_takes_nothing() -> None:
    assert simulate(0.02, 0.0, [1, 8, 3] * 5).taken(9) < 0.02
    assert LoadModel().taken(0) == 0


def test_the_engines_own_count_is_believed_if_it_is_higher() -> None:
    model = LoadModel(lambda: 7)
    model.started(1, 0.0)
    assert model.in_flight == 7
    assert load.LoadModel(lambda: 0).sample() + 1 > 0


# Classes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("ls", "bash:ls"),
        ("cat a.txt", "bash:cat"),
        ("/usr/bin/python3 run.py", "bash:python3"),
        ("grep -n x f | wc -l", "bash:grep|wc"),
        ("cd src && make -j4; ls", "bash:cd;make;ls"),
        ("A=1 B=2 sudo make", "bash:make"),
        ("echo 'a; b | c' > f", "bash:echo>"),
        ("cat <<'EOF' > f\nrm -rf /\nls | wc\nEOF", "bash:cat>"),
        ("date +%N", "bash:date~"),
        ("echo $RANDOM", "bash:echo~"),
        ("ls -la", "bash:ls~"),
        ("make 2>&1", "bash:make"),
        ("for f in *; do wc $f; done", "bash:for;wc;done"),
        ("# nothing", "bash:"),
        ("", "bash:"),
        ("$CMD now", "bash:?"),
        ("a && b && c && d && e && f", "bash:a;b;c;d"),
    ],
)
def test_the_class_of_a_command(command: str, kind: str) -> None:
    assert command_class([ToolCall("bash", {"command": command})]) == kind


def test_the_classes_of_other_tools() -> None:
    assert command_class([ToolCall("sql", {"query": "SELECT 1"})]) == "sql:select"
    assert command_class([ToolCall("python", {"code": "print(1)"})]) == "python"
    assert command_class([ToolCall("python", {"code": "import random"})]) == "python~"
    assert command_class([ToolCall("get_user", {"id": "7"})]) == "get_user"
    assert command_class([ToolCall("a"), ToolCall("b")]) == "a&b"
    assert command_class([ToolCall("a")] * 9) == "a&a&a&"
    assert command_class([]) == ""


@given(st.text(max_size=200))
def test_any_text_has_a_short_class(command: str) -> None:
    kind = command_class([ToolCall("bash", {"command": command})])
    assert len(kind) < 100
