"""Small files of recorded rows, and world models that are easy to foresee."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from obsspec.protocols import Emit, WorldModel
from obsspec.values import Context, EngineError, Observation, Prediction

Rows = Sequence[dict[str, Any]]
WriteRows = Callable[..., Path]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def row(task: str, traj: str, step: int, args: Any, out: str, tool: str = "bash", **more: Any) -> dict[str, Any]:
    return {"task": task, "traj": traj, "step": step, "tool": tool, "args": args, "out": out, **more}


@pytest.fixture
def write(tmp_path: Path) -> WriteRows:
    def write_rows(rows: Rows, name: str = "some.jsonl") -> Path:
        text = "".join(json.dumps(each) + "\n" for each in rows).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write_rows


class Says:
    """Always says the same."""

    def __init__(self, *texts: str, confidence: float = 0.9, name: str = "says") -> None:
        self._texts = texts
        self._confidence = confidence
        self._name = name

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        for text in self._texts:
            emit(Prediction((Observation(text),), self._name, self._confidence))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None: ...


class Counts:
    """Says how many turns it has learnt from."""

    def __init__(self) -> None:
        self.learnt = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        emit(Prediction((Observation(str(self.learnt)),), "counts", 0.5))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        self.learnt += 1


class Breaks:
    """A broken source: fails at what it is told to fail at."""

    def __init__(self, predict: bool = True, learn: bool = False) -> None:
        self._fails = predict, learn

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        if self._fails[0]:
            raise KeyError("broken on purpose")

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        if self._fails[1]:
            raise ValueError("does not learn")


class Interrupts:
    """As if somebody pressed Ctrl-C at the third call."""

    def __init__(self) -> None:
        self._asked = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        self._asked += 1
        if self._asked == 3:
            raise KeyboardInterrupt


class FirstConfident:
    """The plain cascade: stages in order until `breadth` candidates are there."""

    def __init__(self, stages: Sequence[WorldModel]) -> None:
        self._stages = stages

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """A stage that fails is passed over."""
        emitted: list[tuple[str, ...]] = []

        def pass_on(prediction: Prediction) -> None:
            said = tuple(observation.text for observation in prediction.observations)
            if len(emitted) < breadth and said not in emitted:
                emitted.append(said)
                emit(prediction)

        for stage in self._stages:
            if len(emitted) >= breadth:
                return
            try:
                await stage.predict(context, breadth - len(emitted), pass_on)
            except EngineError:
                continue

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        for stage in self._stages:
            stage.learn(context, observations)


class Terminates:
    """As if a batch system ended the process at the third call."""

    def __init__(self) -> None:
        self._asked = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        self._asked += 1
        if self._asked == 3:
            signal.raise_signal(signal.SIGTERM)
            await anyio.sleep_forever()
