"""A whole evaluation on a few rows: what is asked, what is learnt, what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from obsspec.protocols import Emit, WorldModel
from obsspec.values import Context, Observation, Prediction
from obsspec.worldeval.baselines import NO_OUTPUT, REPEAT
from obsspec.worldeval.bench import CASCADE, WITHOUT, Plan
from obsspec.worldeval.data import open_data
from obsspec.worldeval.recorded import image_of
from obsspec.worldeval.run import count_calls, evaluate
from obsspec.worldeval.schedule import Protocol
from obsspec.worldeval.sources import Source, one_for_all
from obsspec.worldeval.store import open_rows, read_rows

from .conftest import Breaks, Counts, FirstConfident, Says, WriteRows, row

pytestmark = pytest.mark.anyio

ROWS = [  # two epochs over two tasks
    row("a", "a1", 0, "one", "0"),
    row("a", "a1", 1, "two", "1"),
    row("b", "b1", 0, "one", "2"),
    row("a", "a2", 0, "one", "0"),
    row("a", "a2", 1, "two", "other"),
    row("b", "b2", 0, "one", ""),
]


def plan(*sources: Source, **more: Any) -> Plan:
    made = Plan(
        sources=sources,
        cascading=lambda stages: FirstConfident(list(stages.values())),
        protocols=[Protocol.EPOCHS],
        image=image_of(""),
    )
    return replace(made, **more)


async def rows_of(path: Path, what: Plan) -> list[dict[str, Any]]:
    with open_data([str(path)], "sequential") as data:
        target = path.parent / "out" / "rows.parquet"
        steps: list[None] = []
        with open_rows(target) as rows:
            await evaluate(data, what, rows, lambda: steps.append(None))
        assert len(steps) == count_calls(data, what)
    return list(read_rows(target).to_pylist())


def of(rows: Sequence[dict[str, Any]], source: str, column: str) -> list[Any]:
    return [each[column] for each in rows if each["source"] == source]


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        (Protocol.COLD, {0: "0", 1: "1", 2: "0", 3: "0", 4: "1", 5: "0"}),
        (Protocol.GROUP, {0: "0", 1: "1", 3: "2", 4: "3", 2: "0", 5: "1"}),
        (Protocol.EPOCHS, {0: "0", 1: "1", 2: "2", 3: "3", 4: "4", 5: "5"}),
    ],
)
async def test_memory_lasts_as_long_as_the_protocol_says(
    write: WriteRows, protocol: Protocol, said: dict[int, str]
) -> None:
    rows = await rows_of(write(ROWS), plan(Source("counts", Counts), protocols=[protocol]))
    found = {
        each["call"]: each["predicted"] or each["expected"]  # what was right is not written twice
        for each in rows
        if each["source"] == "counts"
    }
    assert found == said
    assert list(found) == list(said)


async def test_a_row_says_whether_each_source_was_exactly_right(write: WriteRows) -> None:
    rows = await rows_of(write(ROWS), plan(Source("says", lambda: Says("1", "0")), breadth=2))
    assert of(rows, "says", "rank") == [1, 0, -1, 1, -1, -1]
    assert of(rows, "says", "candidates") == [2] * 6
    assert of(rows, NO_OUTPUT, "rank") == [-1] * 5 + [0]
    assert of(rows, REPEAT, "rank") == [-1, -1, -1, 0, -1, -1]
    assert of(rows, REPEAT, "candidates") == [0, 0, 0, 1, 1, 1]
    assert of(rows, "says", "trivial") == [False] * 5 + [True]
    assert of(rows, "says", "repeat_equal") == [None, None, None, True, False, False]
    assert of(rows, "says", "expected") == ["0", "1", "2", "0", "other", ""]
    assert of(rows, "says", "predicted") == ["1", "", "1", "1", "1", "1"]


async def test_equal_candidates_count_once_and_not_more_than_asked_for(write: WriteRows) -> None:
    rows = await rows_of(write(ROWS), plan(Source("says", lambda: Says("x", "x", "y", "z")), breadth=2))
    assert of(rows, "says", "candidates") == [2] * 6


async def test_the_cascade_takes_the_first_source_that_speaks(write: WriteRows) -> None:
    sources = [
        Source("silent", Says),
        Source("zero", lambda: Says("0", name="zero")),
        Source("one", lambda: Says("1", name="one")),
    ]
    rows = await rows_of(write(ROWS), plan(*sources, ablate=True))
    assert of(rows, CASCADE, "said_by") == ["zero"] * 6
    assert of(rows, CASCADE, "rank") == of(rows, "zero", "rank")
    assert of(rows, f"{WITHOUT}zero", "said_by") == ["one"] * 6
    assert of(rows, f"{WITHOUT}silent", "rank") == of(rows, "zero", "rank")


async def test_the_time_of_a_cascade_holds_that_of_the_sources_it_asked(write: WriteRows) -> None:
    class Slow(Says):
        async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
            await anyio.sleep(0.02)
            await super().predict(context, breadth, emit)

    def fast() -> WorldModel:
        return Says("0")

    rows = await rows_of(write(ROWS[:2]), plan(Source("slow", Slow), Source("fast", fast)))
    assert min(of(rows, CASCADE, "latency_s")) >= 0.02
    rows = await rows_of(write(ROWS[:2]), plan(Source("fast", fast), Source("slow", Slow)))
    assert max(of(rows, CASCADE, "latency_s")) < 0.02


async def test_a_source_that_raises_is_a_result_and_stops_nobody(write: WriteRows) -> None:
    sources = [
        Source("breaks", Breaks),
        Source("forgets", lambda: Breaks(predict=False, learn=True)),
        Source("zero", lambda: Says("0")),
    ]
    rows = await rows_of(write(ROWS), plan(*sources))
    assert of(rows, "breaks", "failed") == of(rows, "forgets", "failed") == [True] * 6
    assert of(rows, "breaks", "error")[0].startswith("KeyError: 'broken on purpose' (conftest.py:")
    assert of(rows, "forgets", "error")[0].startswith("ValueError: does not learn (conftest.py:")
    assert of(rows, "zero", "rank") == of(rows, CASCADE, "rank") == [0, -1, -1, 0, -1, -1]
    assert not any(of(rows, CASCADE, "failed"))


async def test_a_prediction_that_does_not_end_is_given_up(write: WriteRows) -> None:
    class Hangs(Says):
        async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
            await super().predict(context, breadth, emit)
            await anyio.sleep_forever()

    rows = await rows_of(write(ROWS[:1]), plan(Source("hangs", lambda: Hangs("0")), timeout_s=0.01))
    assert of(rows, "hangs", "error") == ["no answer in 0.01 s"]
    assert of(rows, "hangs", "rank") == [0]  # what it had said before counts


async def test_a_source_without_state_is_asked_once_for_all_protocols(write: WriteRows) -> None:
    class Asked:
        times = 0

        async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
            self.times += 1
            emit(Prediction((Observation("0"),), "asked", 1.0))

        def learn(self, context: Context, observations: tuple[Observation, ...]) -> None: ...

    asked = Asked()
    rows = await rows_of(write(ROWS), plan(one_for_all("asked", asked), protocols=list(Protocol)))
    assert asked.times == 6
    assert len(of(rows, "asked", "rank")) == 18


async def test_tasks_that_are_only_learnt_from_are_marked(write: WriteRows) -> None:
    rows = await rows_of(write(ROWS), plan(Source("counts", Counts), test_share=0.5, split_seed=3))
    assert {each["test"] for each in rows} == {True, False}
    assert all(len({each["test"] for each in rows if each["task"] == task}) == 1 for task in "ab")
