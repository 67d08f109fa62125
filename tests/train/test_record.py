"""`obsspec train record`: a recording goes on where it was killed, and touches nothing that is none."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from obsspec.tasks.sessions import Session, load_sessions
from obsspec.tasks.task import Split
from obsspec.train import record
from obsspec.train.record import Progress, record_sessions
from obsspec.values import ConfigError

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third plan is not solved."""

    @asynccontextmanager
    async def open_nothing(self: Any, spec: Any) -> AsyncGenerator[None, None]:
        yield None

    async def play(task: Any, agent: Any, sandbox: Any) -> Session:
        return Session(task.id, agent.name, "do", (), "done", float(int(task.id.rpartition("-")[2]) % 3 > 0))

    monkeypatch.setattr(record.LocalSandboxes, "open", open_nothing)
    monkeypatch.setattr(record, "record", play)


def nobody(progress: Progress) -> None:
    """Nobody looks on."""


async def recorded(path: Path, **changes: Any) -> Progress:
    options: dict[str, Any] = {"split": Split.TRAIN, "seed": 0, "wanted": 30, "parallel": 2, "report": nobody}
    return await record_sessions(path, **{**options, **changes})


async def test_killed_at_any_byte_a_recording_goes_on_without_a_gap_or_a_duplicate(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    await recorded(whole)
    content = whole.read_bytes()
    expected = {(s.task_id, s.agent) for s in load_sessions(whole)}
    assert 0 < len(expected) < 30
    for cut in range(0, len(content) + 1, 7):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(content[:cut])
        assert len(load_sessions(path)) == content[:cut].count(b"\n"), "what is just written is no session yet"
        progress = await recorded(path)
        found = [(s.task_id, s.agent) for s in load_sessions(path)]
        assert len(found) == len(set(found)) == progress.kept
        assert set(found) == expected


@pytest.mark.parametrize("content", [b"\x00weights", b"text\n", b'{"a": 1}\n', b'{"task_id": 1}\n', b'{"a'])
async def test_a_file_that_holds_something_else_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "start.safetensors"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"start\.safetensors"):
        await recorded(path)
    assert path.read_bytes() == content


async def test_what_can_not_be_recorded_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "sessions.jsonl"):
        with pytest.raises(ConfigError, match="can not write"):
            await recorded(path)
    for option, said in (("wanted", "--sessions"), ("parallel", "--parallel"), ("seed", "--seed")):
        with pytest.raises(ConfigError, match=f"{said} must be at least"):
            await recorded(tmp_path / "sessions.jsonl", **{option: -1})


async def test_a_full_disk_is_a_sentence_and_loses_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sessions.jsonl"
    opened = Path.open

    class Full:
        def __init__(self, file: Any, room: int) -> None:
            self._file, self._room, self.name = file, room, file.name
            self.seek, self.truncate = file.seek, file.truncate

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: bytes) -> int:
            written = self._file.write(data[: self._room])
            self._room -= written
            if not written:
                raise OSError(errno.ENOSPC, "No space left on device")
            return written

    def open_full(self: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        file = partial(opened, self, mode)(*more, **options)
        return Full(file, 900) if mode == "ab" else file

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_full)
        with pytest.raises(ExceptionGroup) as raised:
            await recorded(path, parallel=1)
    assert raised.group_contains(ConfigError, match=r"No space left on device; free some space")
    before = path.read_bytes()
    assert 0 < len(load_sessions(path)) == before.count(b"\n")
    assert before.endswith(b"\n")
    await recorded(path)
    assert path.read_bytes().startswith(before)
    assert len({json.loads(line)["task_id"] for line in path.read_text().splitlines()}) == len(load_sessions(path))
