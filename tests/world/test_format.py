"""Observation formats are read back and learnt."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from obsspec.sandbox.canonical import observe
from obsspec.values import Exchange, Observation, ToolCall
from obsspec.world.format import OURS, Body, ExitLine, Plain, ReturnCode
from obsspec.world.formats import FormatLearner

CALL = ToolCall("bash", {"command": "ls"})


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


@given(st.binary(max_size=60), st.binary(max_size=30), st.integers(0, 255))
@settings(max_examples=100)
def test_ours_renders_what_the_sandbox_observes(out: bytes, error: bytes, code: int) -> None:
    stdout, stderr = (stream.decode("utf-8", "surrogateescape") for stream in (out, error))
    text = ExitLine().render(stdout, stderr, code)
    assert text == observe(out, error, exit_code=code).text
    body = ExitLine().read(text)
    assert body is not None
    assert body.exit_code == code


def test_reading_takes_the_frame_away() -> None:
    assert OURS.read("a\nb\n(exit_code=3)") == Body("a\nb", 3, trimmed=True)
    assert OURS.read("(no output)\n(exit_code=0)") == Body("", 0, trimmed=True)
    assert OURS.read("a\n(output cut at 10000 characters)\n(exit_code=0)") == Body("a", 0, trimmed=True, cut=True)
    assert OURS.read("a\n") is None
    assert ReturnCode().read("<returncode>1</returncode>\n<output>\na\n</output>") == Body("a\n", 1)
    assert ReturnCode().read(ReturnCode().render("", "", 0)) == Body("", 0)
    assert Plain(empty="nothing").read("nothing") == Body("")


def test_without_evidence_a_shell_has_our_format() -> None:
    assert FormatLearner().choose(CALL) == OURS
    assert FormatLearner().choose(ToolCall("get_x", {})) == Plain()


def test_formats_are_learnt_across_rollouts_and_the_own_history_counts_first() -> None:
    learner = FormatLearner()
    learner.learn(CALL, "a\nb\n")
    learner.learn(bash("touch x"), "")
    assert learner.choose(CALL) == Plain()
    own = Exchange((CALL,), (Observation("<returncode>0</returncode>\n<output>\nx\n</output>"),))
    assert learner.choose(CALL, (own,)) == ReturnCode()


def test_trimmed_output_and_the_text_for_no_output_are_learnt() -> None:
    learner = FormatLearner()
    learner.learn(CALL, "a\nb")
    assert learner.choose(CALL) == Plain(trimmed=True)
    for name in ("x", "y"):
        learner.learn(bash(f"mkdir {name}"), "All fine.")
    assert learner.choose(CALL) == Plain(trimmed=True, empty="All fine.")


def test_contradicting_evidence_gives_no_format() -> None:
    learner = FormatLearner()
    learner.learn(CALL, "a\n(exit_code=0)")
    learner.learn(CALL, "b\n")
    assert learner.choose(CALL) is None
