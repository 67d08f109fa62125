"""Recording and keeping sessions, on a sandbox that answers from a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from obsspec.sandbox.spec import Entry, EntryKind, Tree
from obsspec.tasks.scripted import Final, Manner, Scripted, scripted_agent
from obsspec.tasks.sessions import load_sessions, record, save_sessions
from obsspec.tasks.suite import make_task
from obsspec.tasks.task import initial_tree, verify
from obsspec.values import Exchange, Observation, ToolCall

pytestmark = pytest.mark.anyio


@dataclass
class Still:
    """A sandbox in which nothing ever changes."""

    start: Tree
    commands: list[str] = field(default_factory=list)

    async def execute(self, call: ToolCall) -> Observation:
        self.commands.append(call.command)
        return Observation("caf\u00e9 \u2028\n(exit_code=0)", exit_code=0, raw=b"caf\xc3\xa9 \xff\n")

    async def tree(self) -> Tree:
        return self.start


class Stubborn:
    name = "stubborn"

    def next(self, history: Sequence[Exchange]) -> str | Final:
        return "ls"


async def test_record_asks_the_agent_until_it_is_done() -> None:
    task = make_task("text", 0)
    agent = scripted_agent(task, Manner.EXPLORER)
    sandbox = Still(initial_tree(task.spec))
    session = await record(task, agent, sandbox)
    assert sandbox.commands == list(agent.commands)
    assert [exchange.calls[0].command for exchange in session.exchanges] == sandbox.commands
    assert (session.task_id, session.agent, session.instruction) == (task.id, "explorer", task.instruction)


async def test_turn_limit_ends_a_session_without_an_answer() -> None:
    task = make_task("tir", 0)
    session = await record(task, Stubborn(), Still({}))
    assert len(session.exchanges) == task.max_turns
    assert session.answer is None
    assert session.reward == 0.0


async def test_an_answer_right_at_the_turn_limit_counts() -> None:
    task = make_task("tir", 0)
    assert task.answer is not None
    session = await record(task, Scripted("patient", ("ls",) * task.max_turns, task.answer), Still({}))
    assert session.reward == 1.0


async def test_sessions_survive_saving_and_loading(tmp_path: Path) -> None:
    task = make_task("files", 4)
    sandbox = Still(initial_tree(task.spec))
    sessions = [await record(task, scripted_agent(task, manner), sandbox) for manner in Manner]
    path = tmp_path / "sessions.jsonl"
    save_sessions(path, sessions)
    assert len(path.read_bytes().splitlines()) == len(sessions)
    assert load_sessions(path) == sessions


def test_scripted_agents_depend_on_their_seed_alone() -> None:
    task = make_task("text", 0)
    for manner in Manner:
        assert scripted_agent(task, manner, 3) == scripted_agent(task, manner, 3)
    assert len({scripted_agent(task, Manner.EXPLORER, seed).commands for seed in range(20)}) > 1


def test_blunderers_do_something_that_the_oracle_does_not() -> None:
    task = make_task("logs", 0)
    blunder = scripted_agent(task, Manner.BLUNDERER).commands
    needed = {command for step in task.steps for act in step.acts for command in act}
    shown = {command for step in task.steps for command in (*step.looks, *step.reviews)}
    assert set(blunder) - needed - shown


def test_verify_judges_against_another_start_when_told_to() -> None:
    task = make_task("tir", 0)
    stray = {"cache": Entry(EntryKind.FILE, 0o644, b"")}
    assert verify(task, stray, task.answer).reward == 0.0
    assert verify(task, stray, task.answer, start=stray).reward == 1.0
