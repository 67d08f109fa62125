"""Versions are there whole or not at all, keep their numbers, and reach whoever serves them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from obsspec.protocols import Policy
from obsspec.testing.policy import ScriptedPolicy
from obsspec.train.live import open_live_policy
from obsspec.train.versions import VersionFolder, follow
from obsspec.values import ConfigError, EngineError
from tests.models.test_merge import write_adapter


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def versions(tmp_path: Path) -> VersionFolder:
    return VersionFolder(tmp_path / "versions", "world")


def adapter(rows: int) -> Callable[[Path], None]:
    return lambda path: write_adapter(path, "model.layers.0.mlp.up_proj", rows, 8) and None


def test_a_version_has_a_number_a_name_and_what_the_trainer_says(versions: VersionFolder) -> None:
    assert versions.latest() is None
    first = versions.publish(0, adapter(4), {"step": 3})
    second = versions.publish(1, adapter(5), {"step": 4})
    assert versions.latest() == second
    assert first.name.startswith("world-000000-")
    assert first.name[-8:] != second.name[-8:]
    assert (second.number, second.facts["step"]) == (1, 4)


def test_a_number_is_given_once(versions: VersionFolder) -> None:
    first = versions.publish(0, adapter(4), {"step": 3})
    assert versions.publish(0, adapter(4), {"step": 9}) == first
    with pytest.raises(ConfigError, match="another adapter"):
        versions.publish(0, adapter(5), {})
    assert versions.latest() == first


def test_what_a_killed_trainer_left_half_written_is_no_version(versions: VersionFolder) -> None:
    def die(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        versions.publish(0, die, {})
    assert versions.latest() is None
    assert versions.publish(0, adapter(4), {}).number == 0
    assert [path.name for path in versions.path.iterdir()] == ["000000"]


class Serving:
    """Serves any adapter with a scripted policy of its version."""

    @asynccontextmanager
    async def open(self, adapter: Path, version: str) -> AsyncGenerator[Policy, None]:
        yield ScriptedPolicy(lambda *_: (), weight_version=version)  # pyright: ignore[reportArgumentType]


@pytest.mark.anyio
async def test_whoever_follows_serves_the_newest_version(versions: VersionFolder) -> None:
    serving = Serving()
    async with open_live_policy(serving.open(Path(), "start")) as live, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: follow(versions, live, serving, poll_s=0.01))
        for number in (0, 1, 5):
            published = versions.publish(number, adapter(number + 1), {})
            with anyio.fail_after(5):
                while live.weight_version != published.name:  # noqa: ASYNC110 - the follower polls a folder
                    await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("error", [ConfigError("cannot write"), EngineError("no memory")])
async def test_a_version_that_does_not_open_is_skipped_and_said_once(
    versions: VersionFolder, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(Serving):
        tries = 0

        @asynccontextmanager
        async def open(self, adapter: Path, version: str) -> AsyncGenerator[Policy, None]:
            if "-000001-" in version:
                self.tries += 1
                raise error
            async with super().open(adapter, version) as policy:
                yield policy

    serving = Refusing()
    async with open_live_policy(serving.open(Path(), "start")) as live, anyio.create_task_group() as tasks:
        refused = versions.publish(1, adapter(1), {})
        tasks.start_soon(lambda: follow(versions, live, serving, poll_s=0.01))
        with anyio.fail_after(5):
            while not caplog.records:  # noqa: ASYNC110 - the follower polls a folder
                await anyio.sleep(0.01)
        await anyio.sleep(0.1)
        assert live.weight_version == "start"
        newer = versions.publish(2, adapter(2), {})
        with anyio.fail_after(5):
            while live.weight_version != newer.name:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert serving.tries == 1
    (record,) = caplog.records
    assert record.getMessage() == f"{refused.name} is not served, start stays: {error}"
