"""Turns that no renderer asked for: whatever was sampled, the rollout goes on or ends typed, the same for everybody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from obsspec.models.tokenizer import load_vocabulary
from obsspec.models.tokenizer_file import FileVocabulary
from obsspec.render.hermes import HermesRenderer
from obsspec.render.terminal import TerminalRenderer
from obsspec.render.vocabulary import Vocabulary
from obsspec.testing import toy_vocabulary
from obsspec.testing.scripts import recite
from obsspec.values import Completion, FinishReason, StopReason, Turn
from tests.core.scene import Scene, answer, says

TOY = toy_vocabulary()
RENDERER = HermesRenderer(TOY)
LS = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'


def parse(text: str) -> Turn:
    ids = (*TOY.encode(text), *RENDERER.stop_token_ids)
    return RENDERER.parse(Completion(ids, (0.0,) * len(ids), FinishReason.STOP))


def call(arguments: str) -> str:
    return f'<tool_call>{{"name": "bash", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (call('{"command": "ls", "x": NaN}'), "NaN is not JSON"),
        (call('{"command": "ls", "x": -Infinity}'), "Infinity is not JSON"),
        (LS + "<tool_call>", "not closed"),
        (LS + '<tool_call>{"name": "bash"', "not closed"),
        (LS + call('{"command": 1}'), "must be a string"),
    ],
)
def test_c17_a_call_that_is_not_one_is_told_and_nothing_runs(text: str, error: str) -> None:
    turn = parse(text)
    assert turn.error is not None
    assert error in turn.error
    assert not turn.calls
    assert turn.stop is None


def test_a_tag_inside_a_command_is_part_of_the_command() -> None:
    turn = parse(call(json.dumps({"command": "echo '<tool_call>'"})))
    assert [c.command for c in turn.calls] == ["echo '<tool_call>'"]


@pytest.mark.parametrize("depth", [31, 32, 33, 500, 900, 960, 990, 5000])
def test_nesting_is_judged_alike_however_deep_the_caller_is(depth: int) -> None:
    def below(frames: int) -> Turn:
        return below(frames - 1) if frames else parse(call(f'{{"command": "ls", "x": {"[" * depth}{"]" * depth}}}'))

    assert below(0) == below(100)
    assert bool(below(0).calls) == (depth < 32)


@pytest.fixture
def file_vocabulary(tmp_path: Path) -> FileVocabulary:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<jupyter_output>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return FileVocabulary(tmp_path / "tokenizer.json")


def test_an_id_outside_the_vocabulary_is_no_text(file_vocabulary: FileVocabulary) -> None:
    vocabularies: list[Vocabulary] = [TOY, load_vocabulary(), file_vocabulary]
    for vocabulary in vocabularies:
        for renderer in (HermesRenderer(vocabulary), TerminalRenderer(vocabulary)):
            (end,) = renderer.stop_token_ids
            for outside in (1 << 17, 1 << 40, -1):
                ids = (*vocabulary.encode("$ls"), outside, end)
                turn = renderer.parse(Completion(ids, (0.0,) * len(ids), FinishReason.STOP))
                assert turn.error == "malformed turn: control token inside"
                assert renderer.read_observation(ids) is None


@pytest.mark.anyio
async def test_a_rollout_goes_on_after_an_id_outside_the_vocabulary() -> None:
    first, *rest = answer()
    _, played = await Scene(recite((first, 1 << 17, *rest), answer("ok")), says("a")).both()
    assert played.trajectory.stop is StopReason.FINAL
    assert [turn.error for turn in played.trajectory.turns] == ["malformed turn: control token inside", ""]
    assert played.report.attempts == []
