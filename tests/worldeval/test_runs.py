"""Run folders: real tokens, real seconds, one arm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from obsspec.compare.evaluate import contexts as contexts_of_run
from obsspec.rollout.store import RunFolder
from obsspec.values import ConfigError
from obsspec.worldeval.recorded import contexts, image_of
from obsspec.worldeval.runs import RunRollouts

from ..compare.conftest import RENDERER, TOOL_S, rollouts

CONFIG = {"format": "terminal", "tokenizer": "bundled"}


def folder(path: Path, config: dict[str, str]) -> Path:
    run = RunFolder(path, config)
    for result in rollouts(None, 2):
        run.append("sequential", result)
        run.append("speculative", result)
    return path


def test_contexts_are_those_that_the_rollout_had(tmp_path: Path) -> None:
    run = RunRollouts(folder(tmp_path / "run", CONFIG), "sequential")
    assert [(entry.task, entry.calls, entry.first) for entry in run.rollouts] == [("task-0", 3, 0), ("task-1", 3, 3)]
    found = list(contexts(run.read(run.rollouts[1]), image_of("")))
    expected = list(contexts_of_run(rollouts(None, 2)[1], RENDERER))
    for (turn, context), (true, observations) in zip(found, expected, strict=True):
        assert (context.prompt, context.completion) == (true.prompt, true.completion)
        assert (context.calls, context.history) == (true.calls, true.history)
        assert turn.observations == observations
        assert turn.tool_s == pytest.approx(TOOL_S)
    run.close()


def test_tokens_of_another_vocabulary_are_left_out(tmp_path: Path) -> None:
    run = RunRollouts(folder(tmp_path / "run", {**CONFIG, "tokenizer": "other.json"}), "sequential")
    assert {turn.prompt for turn in run.read(run.rollouts[0])} == {()}
    run.close()


def test_what_is_no_rollout_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", CONFIG)
    with pytest.raises(ConfigError, match="no tool call of the arm 'other'"):
        RunRollouts(path, "other")
    with (path / "rollouts.jsonl").open("a") as out:
        out.write(json.dumps({"arm": "sequential"}) + "\n")
    with pytest.raises(ConfigError, match="line 5: no rollout"):
        RunRollouts(path, "sequential")


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", CONFIG)
    with (path / "rollouts.jsonl").open("a") as out:
        out.write('{"arm": "sequen')
    run = RunRollouts(path, "sequential")
    assert len(run.rollouts) == 2
    run.close()
