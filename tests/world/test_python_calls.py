"""Which calls are Python, and what is known of code without running it."""

from __future__ import annotations

import pytest

from obsspec.values import Exchange, Observation, ToolCall
from obsspec.world.python.calls import code_history, is_named, python_code, shown_number, volatile_names
from obsspec.world.python.dialects import old_syntax_error

CONTINUED = "unexpected character after line continuation character"


def test_code_is_the_only_text_argument_whatever_its_name() -> None:
    assert python_code(ToolCall("python", {"code": " 1 + 1 \n"})) == "1 + 1"
    assert python_code(ToolCall("run_code", {"source": "x = (", "timeout": 3})) == "x = ("
    assert python_code(ToolCall("python", {"code": "1", "stdin": "2"})) is None


def test_another_tool_may_run_python_if_it_reads_like_it() -> None:
    assert python_code(ToolCall("calculator", {"input": "print(2)"})) == "print(2)"
    assert python_code(ToolCall("shell", {"command": "ls -l | wc"})) is None
    assert python_code(ToolCall("shell", {"command": "ls"})) is None  # a name, in Python too


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *(("python", True), ("PythonREPL", True), ("code_interpreter", True), ("execute_ipython_cell", True)),
        *(("code", True), ("run_code", True), ("reply", False), ("get_zip_code_of", False), ("notes", False)),
    ],
)
def test_names_that_say_python(name: str, named: bool) -> None:
    assert is_named(ToolCall(name, {})) is named


def test_history_is_that_of_the_same_tool() -> None:
    call, other = ToolCall("python", {"code": "a"}), ToolCall("search", {"query": "b"})
    history = (Exchange((call, other), (Observation("1"), Observation("2"))),)
    assert code_history(history, "python") == [("a", Observation("1"))]


def test_what_differs_from_run_to_run_is_named() -> None:
    assert volatile_names("import random\nrandom.randint(1, 2)") == "randint random"
    assert volatile_names("a = 1") == ""


@pytest.mark.parametrize(
    ("text", "number"), [("Out[3]: 1", 3), ("Cell In[12], line 1", 12), ("x\nOut[2]: 1", 2), ("In [4]", 4), ("1", None)]
)
def test_the_number_of_a_cell_is_read_from_what_is_shown(text: str, number: int | None) -> None:
    assert shown_number(text) == number


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("x = 5\ny = 3x", '  File "f", line 2\n    y = 3x\n         ^\nSyntaxError: invalid syntax\n'),
        ("f(1))", "  File \"f\", line 1\n    f(1))\n        ^\nSyntaxError: unmatched ')'\n"),
        ("a + 1 = 2", '  File "f", line 1\n    a + 1 = 2\n    ^\nSyntaxError: cannot assign to operator\n'),
        ("for i in x:\nf", '  File "f", line 2\n    f\n    ^\nIndentationError: expected an indented block\n'),
        ("a\\b = 1", f'  File "f", line 1\n    a\\b = 1\n           ^\nSyntaxError: {CONTINUED}\n'),
    ],
)
def test_syntax_errors_of_older_pythons(code: str, shown: str) -> None:
    """The expected texts are those of Python 3.8."""
    pytest.importorskip("parso", reason="the grammar of older Pythons comes with the extra `tir`")
    report = old_syntax_error(code)
    assert report is not None
    assert report.file("f") == shown


def test_there_is_no_syntax_error_in_good_code() -> None:
    assert old_syntax_error("a = 1") is None
