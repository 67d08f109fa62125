"""Which texts say that a tool succeeded and printed nothing."""

from __future__ import annotations

import pytest

from obsspec.values import Context, Observation, Prediction, ToolCall
from obsspec.worldeval.baselines import NoOutput
from obsspec.worldeval.emptiness import EmptyTexts, is_empty


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "(no output)\n(exit_code=0)",
        "[Executed Successfully with No Output]",
        "<returncode>0</returncode>\n<output>\n</output>",
        '{"returncode": 0, "output": ""}',
        "\n" * 500,
    ],
)
def test_nothing(text: str) -> None:
    assert is_empty(text)


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "[]",
        "{}",
        "None",
        "output",
        "(no output)\n(exit_code=1)",
        "a\n(exit_code=0)",
        "<returncode>1</returncode>\n<output>\n</output>",
        "<b></b>",
        "the program has no output file",
        "no output " * 50,
    ],
)
def test_something(text: str) -> None:
    assert not is_empty(text)


@pytest.mark.anyio
async def test_the_blind_guess_is_what_the_tool_most_often_says() -> None:
    texts = EmptyTexts()
    for text in ("(no output)", "", "(no output)", "file"):
        texts.count("bash", text)
    said: list[Prediction] = []
    context = Context((), (), (ToolCall("bash"), ToolCall("other")))
    await NoOutput(texts.usual()).predict(context, 1, said.append)
    assert said[0].observations == (Observation("(no output)"), Observation(""))
