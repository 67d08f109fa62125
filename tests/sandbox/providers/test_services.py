"""The adapters of Daytona and E2B: the real packages, against stand-ins for the services on loopback."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.providers import call as call_module
from obsspec.sandbox.providers import lease as lease_module
from obsspec.sandbox.providers.daytona import DaytonaSandboxes
from obsspec.sandbox.providers.e2b import E2BSandboxes
from obsspec.sandbox.providers.machine import RunnerSettings
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.testing.conformance import check_sandbox
from obsspec.values import ConfigError, SandboxError
from tests.sandbox.providers.box import boxes as boxes_alive
from tests.sandbox.providers.fake_daytona import fake_daytona
from tests.sandbox.providers.fake_e2b import fake_e2b
from tests.sandbox.providers.serving import KEY, Boxes
from tests.sandbox.support import eventually, host_processes, output, run

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
SETTINGS = RunnerSettings(timeout_s=5, lifetime_s=600)

Sandboxes = DaytonaSandboxes | E2BSandboxes


@dataclass(frozen=True)
class Service:
    """`sandboxes`: from the server's URL, a key and what is asked for. `executed`: the path of an execution."""

    fake: Callable[[], AbstractAsyncContextManager[Boxes]]
    sandboxes: Callable[..., Sandboxes]
    lifetime: dict[str, Any]
    variable: str


def daytona(url: str, key: str | None = KEY, **create: Any) -> DaytonaSandboxes:
    return DaytonaSandboxes(create, {"api_url": url, "api_key": key}, SETTINGS)


def e2b(url: str, key: str | None = KEY, **create: Any) -> E2BSandboxes:
    return E2BSandboxes({"api_url": url, "sandbox_url": url, "api_key": key, "http_version": "1.1", **create}, SETTINGS)


SERVICES = {
    "daytona": Service(
        fake_daytona, daytona, {"ttlMinutes": 10, "autoStopInterval": 10, "autoDeleteInterval": 0}, "DAYTONA_API_KEY"
    ),
    "e2b": Service(fake_e2b, e2b, {"timeout": 600}, "E2B_API_KEY"),
}


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Service:
    pytest.importorskip(request.param)
    service = SERVICES[request.param]
    monkeypatch.delenv(service.variable, raising=False)
    monkeypatch.setattr(lease_module, "PAUSE_S", 0.01)
    return service


@asynccontextmanager
async def served(service: Service) -> AsyncGenerator[Boxes]:
    """In the end nothing is left."""
    async with service.fake() as boxes:
        yield boxes
        assert boxes.live == {}
    assert await eventually(lambda: boxes_alive() == 0)


async def running() -> int:
    return sum(len(host_processes(marker)) for marker in ("sleep 1.03125", "sleep 30.03125"))


async def test_the_promises_of_sandboxes_and_of_guarded_calls(service: Service) -> None:
    async with served(service) as boxes:
        sandboxes = service.sandboxes(boxes.url)
        await check_sandbox(lambda: sandboxes.open(SandboxSpec()), running=running)


async def test_a_rollout_there_is_one_here_and_the_service_is_told_when_to_end_it(service: Service) -> None:
    """Long requests, odd bytes and failing commands included."""
    spec = SandboxSpec(files=(FileSpec("f", b"\x00\xff", 0o600),), setup=("echo hi > g",))
    commands = ["cat g; x=1", f"wc -c <<'EOF'\n{'y' * 70_000}\nEOF", "printf '\\xff\\n'; echo $x >&2; exit 3", "cat f"]
    async with LocalSandboxes(5).open(spec) as local:
        expected = [await run(local, command) for command in commands], await local.tree()
    async with served(service) as boxes:
        async with service.sandboxes(boxes.url).open(spec) as sandbox:
            assert ([await run(sandbox, command) for command in commands], await sandbox.tree()) == expected
            assert sandbox.log == commands
        (asked,) = boxes.created
        assert service.lifetime.items() <= asked.items()


async def test_an_execution_that_fails_is_repeated_and_the_command_is_not(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_module, "PAUSE_S", 0.01)
    async with served(service) as boxes, service.sandboxes(boxes.url).open(SandboxSpec()) as sandbox:
        boxes.fail_next = 2
        assert await output(sandbox, "echo x >> f; cat f") == "x"
        boxes.fail_next = 100
        with pytest.raises(SandboxError, match="no answer from the sandbox"):
            await run(sandbox, "echo y >> f")
        boxes.fail_next = 0
        assert await output(sandbox, "cat f") == "x"


async def test_a_sandbox_that_has_gone_is_an_error_and_so_is_not_its_deletion(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_module, "PAUSE_S", 0.01)
    async with served(service) as boxes, service.sandboxes(boxes.url).open(SandboxSpec()) as sandbox:
        await boxes.end("box1")
        with pytest.raises(SandboxError, match="no answer from the sandbox"):
            await run(sandbox, "true")


@pytest.mark.parametrize("after_s", [0.01, 0.15, 0.4, 1.5])
async def test_d11_cancelled_at_any_moment_the_sandbox_is_deleted(service: Service, after_s: float) -> None:
    async with served(service) as boxes:
        with anyio.move_on_after(after_s):
            async with service.sandboxes(boxes.url).open(SandboxSpec()) as sandbox:
                await run(sandbox, "sleep 3941")
        assert len(boxes.created) <= 1
        assert boxes.live == {}
    assert await eventually(lambda: host_processes("sleep 3941") == [])


async def test_wrong_credentials_and_none_are_mistakes_of_the_user_and_are_not_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(service) as boxes:
        for key in ("a-wrong-key", None):
            with pytest.raises(ConfigError, match=service.variable) as raised:
                async with service.sandboxes(boxes.url, key).open(SandboxSpec()):
                    pass
            assert "a-wrong-key" not in f"{raised.value}{raised.value.__cause__}"
        monkeypatch.setenv(service.variable, KEY)
        async with service.sandboxes(boxes.url, None).open(SandboxSpec()) as sandbox:
            assert await output(sandbox, "echo hi") == "hi"


async def test_a_service_that_can_not_be_reached_is_an_error(service: Service) -> None:
    with pytest.raises(SandboxError, match="the provider made no sandbox"):
        async with service.sandboxes("http://127.0.0.1:9").open(SandboxSpec()):
            pass


async def test_many_sandboxes_are_open_at_a_time_one_after_another(service: Service) -> None:
    async with served(service) as boxes:
        sandboxes = service.sandboxes(boxes.url)

        async def rollout(number: int) -> None:
            async with sandboxes.open(SandboxSpec()) as sandbox:
                assert await output(sandbox, f"echo {number} > f; cat f") == str(number)

        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(rollout, number)
