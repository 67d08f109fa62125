"""The rules of verl's loop and where an answer goes in its prompts, with verl's own parser and builder, without Ray."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

from transformers import AutoTokenizer
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from obsspec.integrations.verl.requests import Request, ServerCompletion, sampling_of
from obsspec.integrations.verl.template import TemplateRenderer
from obsspec.integrations.verl.turns import LoopRules
from obsspec.values import FinishReason, GenerationKey, Observation, RenderError
from tests.integrations.verl.model import write_model

pytestmark = [pytest.mark.verl, pytest.mark.anyio]

SAID = 'Look.\n<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>'
START = [{"role": "user", "content": "List the files."}]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Loop:
    """What the rules need of a `ToolAgentLoop`: verl's own parts, put together by hand."""

    def __init__(self, folder: Path, **limits: int | None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.continuous_token_builder = create_continuous_token_builder(self.tokenizer, hf_model_type="qwen3")
        self.tool_parser = ToolParser.get_tool_parser("hermes", self.tokenizer)
        self.max_parallel_calls = 2
        self.max_assistant_turns = limits.get("max_assistant_turns")
        self.max_user_turns = limits.get("max_user_turns")
        self.response_length = limits.get("response_length") or 1000
        self._build_assistant_message = ToolAgentLoop._build_assistant_message.__get__(self)

    def rules(self, level: int = 0) -> tuple[LoopRules, tuple[int, ...]]:
        """Before generation number `level` on the first prompt."""
        prompt = tuple(self.continuous_token_builder.build_initial_tokens(START))
        rules = LoopRules(self)
        shell = SimpleNamespace(tool_schema=None)
        rules.begin(SimpleNamespace(prompt_ids=prompt, _active_tools={"shell": shell}, _active_tool_schemas=[]))
        rules.note(prompt, level, START)
        return rules, prompt

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))


async def _read(loop: Loop, said: str = SAID, level: int = 0) -> tuple[LoopRules, GenerationKey, ServerCompletion]:
    rules, prompt = loop.rules(level)
    ids = loop.ids(said + "<|im_end|>")
    spoken = await rules.read(prompt, ids)
    completion = ServerCompletion(ids, (0.0,) * len(ids), FinishReason.STOP, spoken=spoken)
    return rules, GenerationKey(prompt, sampling_of(Request("rollout"))), completion


async def test_the_next_prompt_is_what_the_template_makes_of_the_messages(tmp_path: Path) -> None:
    loop = Loop(write_model(tmp_path))
    rules, key, completion = await _read(loop)
    follow = rules.follow(0, key, completion, [Observation("notes.txt\n")])
    assert follow.key is not None
    assert follow.key.sampling == key.sampling
    text = loop.tokenizer.decode(follow.prompt)
    answer = "<|im_start|>user\n<tool_response>\nnotes.txt\n\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert text == loop.tokenizer.decode(key.prompt) + f"{SAID}<|im_end|>\n{answer}"


async def test_a_prediction_goes_on_from_a_prediction(tmp_path: Path) -> None:
    loop = Loop(write_model(tmp_path))
    rules, key, completion = await _read(loop)
    first = rules.follow(0, key, completion, [Observation("a")])
    assert first.key is not None
    spoken = await rules.read(first.prompt, completion.token_ids)
    again = ServerCompletion(completion.token_ids, completion.logprobs, FinishReason.STOP, spoken=spoken)
    second = rules.follow(1, first.key, again, [Observation("b")])
    assert second.prompt[: len(first.prompt)] == first.prompt
    assert loop.tokenizer.decode(second.prompt[len(first.prompt) :]).count("<tool_response>\nb\n</tool_response>") == 1


@pytest.mark.parametrize(
    ("limits", "level", "calls"),
    [
        ({}, 0, 1),
        ({"max_assistant_turns": 2}, 0, 1),
        ({"max_assistant_turns": 2}, 1, 0),
        ({"max_user_turns": 1}, 0, 1),
        ({"max_user_turns": 1}, 1, 0),
        ({"response_length": 10}, 0, 0),
    ],
)
async def test_c19_where_the_loop_ends_nothing_follows(
    tmp_path: Path, limits: dict[str, int], level: int, calls: int
) -> None:
    rules, _, completion = await _read(Loop(write_model(tmp_path), **limits), level=level)
    turn = rules.parse(completion)
    assert len(turn.calls) == calls
    assert rules.speculable(level, turn) is bool(calls)


async def test_f01_an_answer_that_fills_the_response_is_followed_by_nothing(tmp_path: Path) -> None:
    write_model(tmp_path)
    rules, key, completion = await _read(Loop(tmp_path))
    sized = len(rules.follow(0, key, completion, [Observation("x" * 50)]).prompt) - len(key.prompt)
    for length, goes_on in ((sized + 1, True), (sized, False)):
        rules, key, completion = await _read(Loop(tmp_path, response_length=length))
        assert (rules.follow(0, key, completion, [Observation("x" * 50)]).key is not None) is goes_on


@pytest.mark.parametrize(
    "said",
    [
        "That is all.",
        '<tool_call>\n{"name": "browser", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "shell", "arguments": "ls"}\n</tool_call>',
        f'{SAID}<tool_call>\n{{"name": "browser", "arguments": {{}}}}\n</tool_call>',
        '<tool_call>\n{"name": "shell", "arguments": {\n</tool_call>',
    ],
    ids=["final", "unknown", "no-object", "one-of-two-unknown", "malformed"],
)
async def test_c17_what_is_answered_without_a_tool_is_not_predicted(tmp_path: Path, said: str) -> None:
    rules, _, completion = await _read(Loop(write_model(tmp_path)), said)
    assert rules.parse(completion).calls == ()


@pytest.mark.parametrize("tags", [("<tool_response>", "</tool_response>"), ()], ids=["own-tokens", "ordinary-text"])
@pytest.mark.parametrize("text", ["", "\n", "notes.txt\n", "two\nlines", " x "])
async def test_an_answer_is_opened_and_read_where_the_template_has_it(
    tmp_path: Path, tags: tuple[str, ...], text: str
) -> None:
    loop: Any = Loop(write_model(tmp_path, tags))
    rules, key, completion = await _read(loop)
    renderer = TemplateRenderer(rules, loop.tokenizer)
    opening = renderer.open_observation(key.prompt, completion.token_ids, [])
    whole = rules.follow(0, key, completion, [Observation(text)]).prompt
    assert whole[: len(opening)] == opening
    written = whole[len(opening) :]
    (stop,) = renderer.observation_stop_ids
    cut = written[: written.index(stop) + 1]
    assert renderer.read_observation(cut) == text
    assert renderer.read_observation(cut[:-1]) is None


async def test_the_second_answer_of_a_turn_comes_after_the_first(tmp_path: Path) -> None:
    loop: Any = Loop(write_model(tmp_path))
    rules, key, completion = await _read(loop, SAID + SAID)
    renderer = TemplateRenderer(rules, loop.tokenizer)
    opening = renderer.open_observation(key.prompt, completion.token_ids, [Observation("first")])
    text = loop.tokenizer.decode(opening)
    assert text.endswith("<tool_response>\nfirst\n</tool_response>\n<tool_response>\n")


async def test_a_template_without_an_end_is_refused(tmp_path: Path) -> None:
    loop: Any = Loop(write_model(tmp_path))
    rules, key, completion = await _read(loop)
    blind = SimpleNamespace(get_added_vocab=dict, decode=loop.tokenizer.decode)
    with pytest.raises(RenderError, match="does not end a tool's answer"):
        TemplateRenderer(rules, blind).open_observation(key.prompt, completion.token_ids, [])
