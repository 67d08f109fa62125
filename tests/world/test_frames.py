"""Frames around outputs are found by comparison, and outputs are read from them and written into them."""

from __future__ import annotations

import json

import pytest

from obsspec.values import Exchange, Observation, ToolCall
from obsspec.world.format import Body, Plain, ReturnCode
from obsspec.world.formats import FormatLearner
from obsspec.world.frames import Escapes, Frame
from obsspec.world.framing import find_frame

RUNS = [("a\n", 0), ("", 0), ("b: no such file\n", 1), ("x\ny <z>\n", 0), ("é\n", 0), ("f\n", 127)]


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


def found(texts: list[str]) -> Frame:
    frame = find_frame(texts)
    assert frame is not None
    assert frame.determined
    return frame


@pytest.mark.parametrize(
    "template",
    [
        '{{\n  "returncode": {code},\n  "output": {json}\n}}',
        '{{"output": {json}, "metadata": {{"exit_code": {code}, "seconds": 0.0}}}}',
        "<result>\n<exit_code>{code}</exit_code>\n<stdout>{out}</stdout>\n</result>",
        "<exit_code>{code}</exit_code>\n<stdout>\n{out}</stdout>",
    ],
)
def test_a_frame_is_found_and_filled_as_the_tool_does(template: str) -> None:
    texts = [template.format(code=code, out=out, json=json.dumps(out)) for out, code in RUNS]
    frame = found(texts)
    for text, (out, code) in zip(texts, RUNS, strict=True):
        assert frame.read(text) == Body(out, code)
        assert frame.render(out, "", code) == text


def test_frames_that_drop_line_ends() -> None:
    texts = [f"Output: {out.rstrip() or '(empty)'}\nExit Code: {code}" for out, code in RUNS]
    frame = found(texts)
    assert [frame.render(out, "", code) for out, code in RUNS] == texts
    assert frame.read(texts[1]) == Body("", 0, trimmed=True)
    bare = ["[exit code: 0]", "foo\n[exit code: 0]", "bar\nx\n[exit code: 1]", "b\n[exit code: 0]"]
    frame = found(bare)
    assert frame.render("", "", 2) == "[exit code: 2]"
    assert frame.render("a\n", "", 0) == "a\n[exit code: 0]"
    assert frame.read("[exit code: 3]") == Body("", 3, trimmed=True)


def test_two_streams_of_an_object_are_told_apart() -> None:
    texts = [json.dumps({"stdout": f"{i}\n", "stderr": "e" * i, "exit_code": i}) for i in range(5)]
    frame = found(texts)
    assert not frame.merges
    assert frame.render("3\n", "eee", 3) == texts[3]
    assert frame.read(texts[2]) == Body("2\nee", 2)


def test_markup_in_objects_is_escaped_as_it_was_seen() -> None:
    texts = [f'{{"returncode": 0, "output": "\\u003cp{i}\\u003e"}}' for i in range(4)]
    frame = found(texts)
    assert frame.escapes is Escapes.MARKUP
    assert frame.render("<p2>", "", 0) == texts[2]


def test_outputs_alone_have_no_frame() -> None:
    assert find_frame([f"{i}\nsame\n" for i in range(9)]) is None
    assert find_frame(["a\n", "b\n", "", "c\nd\n", "1\n"]) is None
    assert find_frame(['{"x": 1}', '{"x": 2}', '{"y": "b"}', "{}"]) is None


def test_a_frame_with_the_time_a_call_took_is_not_guessed() -> None:
    texts = [f"Exit code: {code}\nWall time: {i}.5 seconds\nOutput:\n{out}" for i, (out, code) in enumerate(RUNS)]
    frame = find_frame(texts)
    assert frame is not None
    assert not frame.determined
    learner = FormatLearner()
    for i, text in enumerate(texts):
        learner.learn(bash(f"cat {i}"), text)
    assert learner.choose(bash("ls")) is None


def test_the_directory_in_a_frame_follows_the_shell() -> None:
    def shown(out: str, code: int, directory: str = "/work") -> str:
        return f"{out}\n[Current working directory: {directory}]\n[Command finished with exit code {code}]"

    learner = FormatLearner()
    assert learner.choose(bash("ls"), ()) is not None
    for out, code in RUNS:
        learner.learn(bash(f"cat {code}"), shown(out.rstrip(), code))
    before = Exchange((bash("ls"),), (Observation(shown("a", 0, "/work/sub")),))
    for command, directory in (("ls", "/work/sub"), ("cd ..", "/work"), ("cd /x && ls", "/x")):
        chosen = learner.choose(bash(command), (before,))
        assert chosen is not None
        assert chosen.render("f\n", "", 0) == shown("f", 0, directory)
    assert learner.choose(bash("ls"), ()) is None  # nothing told where the shell is


def test_frames_are_learnt_in_few_observations_and_followed() -> None:
    learner = FormatLearner()
    for out, code in RUNS:
        learner.learn(bash(f"cat {code}"), json.dumps({"output": out, "exit_code": code}))
    chosen = learner.choose(bash("ls"))
    assert isinstance(chosen, Frame)
    plain = Exchange((bash("ls"),), (Observation("a\nb\n"),))
    assert learner.choose(bash("ls"), (plain,)) == Plain()  # this rollout has another harness
    for i in range(40):
        learner.learn(bash("ls"), f"a\n{i}\n")
    assert isinstance(learner.choose(bash("ls")), Plain)


def test_a_long_output_that_was_cut_keeps_its_format() -> None:
    text = (
        "<returncode>0</returncode>\n<warning>\nlong\n</warning><output_head>\nabc\n</output_head>\n<elided_chars>\n9"
    )
    assert ReturnCode().read(text) == Body("abc", 0, cut=True)
