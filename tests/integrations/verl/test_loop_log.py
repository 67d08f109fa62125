"""What a rollout of verl's loop leaves in the transition log, with a toy loop in verl's place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from obsspec.integrations.verl import transitions
from obsspec.integrations.verl.origin import Origin, origin_of, remember_origins
from obsspec.integrations.verl.transitions import OBSERVATION, observed, writer_of
from obsspec.tasks.task import Split
from obsspec.train.transition_log import TransitionWriter
from obsspec.train.transitions import Ended, FilterRules, Transition, examples
from obsspec.values import ConfigError, Observation, SandboxError, StopReason
from tests.integrations.verl.toy_loop import END, OPENING, VOCABULARY, Toy, ToyLoop, ToyTokenizer
from tests.train.test_transitions import everything

pytestmark = pytest.mark.anyio  # of those that are async

SAMPLE = {"raw_prompt": "look"}
SAYS = ("shell:cat f", "shell:a\nshell:b", "done")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "worker_name", lambda: "agent_loop_worker_0")


class Worker:
    """As verl's: it knows where a rollout comes from, and tells its agent loop nothing."""

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Mapping[str, Any], **sample: Any) -> Any:
        del sampling_params
        toy, folder, says = sample.pop("toy"), sample.pop("folder"), sample.pop("says")
        return await toy.play(folder, says, sample)


remember_origins(Worker)
remember_origins(Worker)


async def play(
    folder: Path, toy: Toy | None = None, says: tuple[str, ...] = SAYS, *, validate: bool = False, **sample: Any
) -> Any:
    trajectory = {"step": 5, "sample_index": 17, "rollout_n": 2, "validate": validate}
    made = {"toy": toy or Toy(), "folder": str(folder), "says": says, **SAMPLE, **sample}
    return await Worker()._run_agent_loop({}, trajectory=trajectory, **made)


def turns(folder: Path) -> list[Transition]:
    return everything(folder).transitions


def ended(folder: Path) -> Ended:
    (end,) = everything(folder).ended
    return end


async def test_every_turn_is_there_in_the_policys_own_ids(tmp_path: Path) -> None:
    agent = await play(tmp_path)
    first, second, last = turns(tmp_path)
    assert last.ids == tuple(agent.prompt_ids)
    for turn, text in zip((first, second, last), SAYS, strict=True):
        assert turn.ids == last.ids[: len(turn.ids)]
        assert turn.ids[slice(*turn.action)] == (*VOCABULARY.encode(text), END)
    assert [[call.command for call in turn.calls] for turn in (first, second, last)] == [["cat f"], ["a", "b"], []]
    for turn in (first, second):
        for (begin, end), seen in zip(turn.targets, turn.observations, strict=True):
            assert turn.ids[begin - 1] == OPENING
            assert turn.ids[begin:end] == (*VOCABULARY.encode(seen.text), END)
    assert [len(turn.targets) for turn in (first, second, last)] == [1, 2, 0]
    made, left_out = examples(turns(tmp_path), FilterRules())
    assert [span.stop - span.start for span in made[0].spans] == [
        1 + len(VOCABULARY.encode(f"hello {command}")) for command in ("cat f", "a", "b")
    ]
    assert sum(left_out.values()) == 1


async def test_a_turn_says_where_it_comes_from(tmp_path: Path) -> None:
    await play(tmp_path, Toy(version=lambda turn: 4 + turn // 2))
    found = turns(tmp_path)
    assert [turn.policy_versions for turn in found] == [("4",), ("4", "4"), ("4", "4", "5")]
    assert {(turn.rollout, turn.step, turn.writer, turn.split) for turn in found} == {
        ("5/17/2", 5, "agent_loop_worker_0", Split.TRAIN)
    }
    assert found[0].group == f"5/{found[0].task_id}"
    assert (ended(tmp_path).stop, math.isnan(ended(tmp_path).reward)) == (StopReason.FINAL, True)


async def test_tasks_are_told_apart_by_prompt_and_tools(tmp_path: Path) -> None:
    for sample in ({}, {"raw_prompt": "other"}, {"tools_kwargs": {"shell": 1}}, {}):
        await play(tmp_path, None, ("done",), session_id=len(str(sample)), **sample)
    assert len({turn.task_id for turn in turns(tmp_path)}) == 3


async def test_rollouts_of_validation_and_without_a_folder_write_nothing(tmp_path: Path) -> None:
    await play(tmp_path / "log", validate=True)
    assert not (tmp_path / "log").exists()
    await Toy().play("", SAYS, dict(SAMPLE))  # nobody asks then where it comes from


async def test_a_rollout_that_is_made_again_goes_along_what_is_there(tmp_path: Path) -> None:
    await play(tmp_path, None, ("shell:a", "shell:b", "done"))
    await play(tmp_path, None, ("shell:a", "shell:c", "done"))
    await play(tmp_path, None, ("shell:a", "shell:b", "done"))
    assert sorted(turn.level for turn in turns(tmp_path)) == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("loop", "stop", "levels"),
    [
        (ToyLoop(max_turns=2), StopReason.TURN_LIMIT, 2),
        (ToyLoop(response_length=35), StopReason.CONTEXT_LIMIT, 2),
        (ToyLoop(response_length=10), StopReason.CONTEXT_LIMIT, 1),
    ],
    ids=["turns", "no room for the answers", "no room for the turn"],
)
async def test_c19_f01_where_the_loop_ends_no_answer_is_a_target(
    tmp_path: Path, loop: ToyLoop, stop: StopReason, levels: int
) -> None:
    agent = await play(tmp_path, Toy(loop))
    found = turns(tmp_path)
    assert len(found) == levels
    assert found[-1].targets == ()
    assert found[-1].ids == tuple(agent.prompt_ids)
    assert ended(tmp_path).stop is stop


async def test_what_ids_do_not_say_is_not_written(tmp_path: Path) -> None:
    """Pictures in the prompt, or as an answer, and builders that take sampled tokens away."""
    picture = Toy(answers=lambda command: None if command == "b" else "hello")
    for name, toy, sample in (
        ("prompt", Toy(), {"picture": ["picture"]}),
        ("answer", picture, {}),
        ("taken", Toy(ToyLoop(takes_away=True)), {}),
    ):
        await play(tmp_path / name, toy, **sample)
    assert [len(turns(tmp_path / name)) for name in ("prompt", "answer", "taken")] == [0, 1, 0]
    assert {ended(tmp_path / name).stop for name in ("prompt", "answer", "taken")} == {StopReason.FINAL}


async def test_a_template_that_does_not_end_answers_leaves_turns_without_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ToyTokenizer, "get_added_vocab", lambda _self: {})
    agent = await play(tmp_path)
    assert [turn.targets for turn in turns(tmp_path)] == [()] * 3
    assert turns(tmp_path)[-1].ids == tuple(agent.prompt_ids)


@pytest.mark.parametrize(
    ("error", "stop"),
    [(SandboxError("no room"), StopReason.SANDBOX_ERROR), (RuntimeError("no room"), StopReason.ENGINE_ERROR)],
)
async def test_a_rollout_that_fails_keeps_the_turns_it_finished(
    tmp_path: Path, error: Exception, stop: StopReason
) -> None:
    def answers(command: str) -> str:
        if command == "a":
            raise error
        return "hello"

    with pytest.raises(type(error), match="no room"):
        await play(tmp_path, Toy(answers=answers))
    assert len(turns(tmp_path)) == 1
    assert (ended(tmp_path).stop, ended(tmp_path).error) == (stop, f"{type(error).__name__}: no room")


async def test_d11_a_cancelled_rollout_keeps_the_turns_it_finished(tmp_path: Path) -> None:
    class Hanging(ToyLoop):
        async def extract_tool_calls(self, ids: Any, schemas: Any) -> Any:
            if VOCABULARY.decode(list(ids)[:-1]) == SAYS[1]:
                await anyio.sleep_forever()
            return await super().extract_tool_calls(ids, schemas)

    with anyio.move_on_after(0.05) as scope:
        await play(tmp_path, Toy(Hanging()))
    assert scope.cancelled_caught
    assert len(turns(tmp_path)) == 1
    assert ended(tmp_path).stop is StopReason.CANCELLED


def test_a_worker_writes_under_one_name_and_another_where_that_is_taken(tmp_path: Path) -> None:
    with TransitionWriter(tmp_path, "w"), TransitionWriter(tmp_path, "w.2"):  # of processes that are still there
        ours = writer_of(tmp_path, "w")
    assert writer_of(tmp_path, "w") is ours
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.2.jsonl", "w.3.jsonl", "w.jsonl"]


async def test_rollouts_side_by_side_know_their_own_origin() -> None:
    found: dict[int, Origin] = {}

    class Side:
        async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, **sample: Any) -> None:
            await anyio.wait_all_tasks_blocked()
            found[trajectory["sample_index"]] = origin_of(sample)

    remember_origins(Side)
    async with anyio.create_task_group() as tasks:
        for index in range(3):
            where = {"step": 1, "sample_index": index, "rollout_n": 0, "validate": index == 1}
            tasks.start_soon(Side()._run_agent_loop, {}, where)
    assert {index: (origin.index, origin.validate) for index, origin in found.items()} == {
        0: ("0", False),
        1: ("1", True),
        2: ("2", False),
    }


async def test_where_nobody_says_whether_it_is_validation_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not tell whether a rollout is of validation"):
        await Toy().play(str(tmp_path), SAYS, dict(SAMPLE))
    assert turns(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        ("ok", {}, Observation("ok")),
        (None, None, Observation("")),
        ("x" * 11, {}, Observation("x" * 11, truncated=True)),
        ("ok", {OBSERVATION: Observation("ok", 1, timed_out=True)}, Observation("ok", 1, timed_out=True)),
        ("o..", {OBSERVATION: Observation("other", 1)}, Observation("o..", 1)),
        ("ok", {OBSERVATION: "what a user's tool put there"}, Observation("ok")),
    ],
)
def test_an_answer_is_what_the_policy_sees_with_what_the_sandbox_knows(
    text: str | None, facts: Any, expected: Observation
) -> None:
    response = SimpleNamespace(text=text, image=None, video=None)
    assert observed((response, 0.0, facts), 10) == expected


def test_an_answer_with_a_picture_is_none() -> None:
    assert observed((SimpleNamespace(text="see", image=["picture"], video=None), 0.0, {}), 10) is None
