"""The sources by name: each starts, forgets as the protocol says, and gets what it needs."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from rich.console import Console

from obsspec.compare.evaluate import contexts as contexts_of_run
from obsspec.protocols import Emit
from obsspec.tasks.environment import TaskEnvironment
from obsspec.values import ConfigError, Context, Observation
from obsspec.worldeval.bench import CASCADE
from obsspec.worldeval.data import open_data
from obsspec.worldeval.environments import Unknown, environment_of
from obsspec.worldeval.lm import Rendered
from obsspec.worldeval.plan import make_plan
from obsspec.worldeval.run import evaluate
from obsspec.worldeval.settings import EvalSettings
from obsspec.worldeval.store import open_rows, read_rows

from ..compare.conftest import RENDERER, rollouts
from .conftest import WriteRows, row


async def right(path: Path, sources: str) -> dict[tuple[str, str], list[int]]:
    """By protocol and source, the numbers of the calls that were exactly right."""
    found: dict[tuple[str, str], list[int]] = {}
    target = path.parent / "rows.parquet"
    with open_data([str(path)], "sequential") as data, open_rows(target) as rows:
        async with make_plan(EvalSettings(sources=sources), Console(quiet=True)) as plan:
            await evaluate(data, plan, rows, lambda: None)
    for each in read_rows(target).to_pylist():
        numbers = found.setdefault((each["protocol"], each["source"]), [])
        if each["rank"] == 0:
            numbers.append(each["call"])
    return found


@pytest.mark.anyio
async def test_memory_is_new_where_the_protocol_says_so(write: WriteRows) -> None:
    rows = [row(task, f"{task}{n}", 0, "cat /etc/motd", f"welcome to {task}\n") for n in range(4) for task in "ab"]
    found = await right(write(rows), "memory")
    assert found["cold", "memory"] == found["cold", CASCADE] == []
    for protocol in ("group", "epochs"):
        assert set(found[protocol, "memory"]) >= {2, 3, 4, 5, 6, 7}
        assert set(found[protocol, CASCADE]) >= {4, 5, 6, 7}


@pytest.mark.sandbox
@pytest.mark.anyio
async def test_a_replica_runs_what_the_task_really_starts_from(write: WriteRows) -> None:
    rows = [row("files-easy-3", "r", n, "echo $((6 * 7))", "42\n(exit_code=0)") for n in range(2)]
    found = await right(write(rows), "replica")
    assert found["epochs", "replica"] == [0, 1]
    elsewhere = [{**each, "task": "somewhere-else"} for each in rows]
    assert (await right(write(elsewhere), "replica"))["epochs", "replica"] == []


@pytest.mark.anyio
async def test_tasks_of_the_suite_are_made_again_from_their_id() -> None:
    environment = environment_of("files-hard-12", "x")
    assert isinstance(environment, TaskEnvironment)
    assert environment.task.id == environment.task_id == "files-hard-12"
    for task in ("files-hard-x", "files-12", "nothing-easy-1", "files-brutal-1", ""):
        other = environment_of(task, "x")
        assert isinstance(other, Unknown)
        assert (other.task_id, other.image) == (task, "x")
        with pytest.raises(ConfigError, match="no sandbox of the recorded task"):
            async with other.open():
                pass


def test_a_rendered_history_is_the_one_that_a_rollout_would_have_had() -> None:
    class Looks:
        def __init__(self) -> None:
            self.seen: list[Context] = []

        async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
            self.seen.append(context)

        def learn(self, context: Context, observations: tuple[Observation, ...]) -> None: ...

    looks = Looks()
    world_model = Rendered(looks, RENDERER)
    known = [context for context, _ in contexts_of_run(rollouts(None, 1)[0], RENDERER)]
    for context in known:
        bare = Context((), (), context.calls, context.history)
        anyio.run(world_model.predict, bare, 1, lambda prediction: None)
        anyio.run(world_model.predict, context, 1, lambda prediction: None)
    assert len(known) == 3
    hello, nothing = len(RENDERER.start("hello")), len(RENDERER.start(""))
    for context, rendered, real in zip(known, looks.seen[::2], looks.seen[1::2], strict=True):
        assert rendered.prompt[nothing:] == context.prompt[hello:]
        assert rendered.completion == context.completion
        assert real == context
