"""The adapter of Modal, whose wire is gRPC: its objects are replaced, and the calls are checked against the package."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import anyio
import pytest

from obsspec.sandbox.providers import call as call_module
from obsspec.sandbox.providers import modal as adapter
from obsspec.sandbox.providers.machine import RunnerSettings
from obsspec.sandbox.providers.modal import ModalSandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.testing.conformance import check_sandbox
from obsspec.values import ConfigError, SandboxError
from tests.sandbox.providers.box import boxes as boxes_alive
from tests.sandbox.providers.serving import Boxes
from tests.sandbox.support import eventually, host_processes, output, run

modal = pytest.importorskip("modal")
pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


@asynccontextmanager
async def stand_in(patch: pytest.MonkeyPatch, **create: Any) -> AsyncGenerator[tuple[ModalSandboxes, Any, Boxes]]:
    from tests.sandbox.providers.fake_modal import fake_modal

    patch.setattr(call_module, "PAUSE_S", 0.01)
    async with fake_modal() as (module, boxes):
        patch.setattr(adapter, "load", lambda *_: module)
        yield ModalSandboxes("tests", create, RunnerSettings(5, lifetime_s=600)), module, boxes
        assert boxes.live == {}
    assert await eventually(lambda: boxes_alive() == 0)


async def running() -> int:
    return sum(len(host_processes(marker)) for marker in ("sleep 1.03125", "sleep 30.03125"))


async def test_the_promises_of_sandboxes_and_of_guarded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand_in(monkeypatch) as (sandboxes, _, _):
        await check_sandbox(lambda: sandboxes.open(SandboxSpec()), running=running)


async def test_what_is_created_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand_in(monkeypatch, cpu=2.0, memory=512) as (sandboxes, _, boxes):
        async with sandboxes.open(SandboxSpec(setup=("echo hi > f",))) as sandbox:
            assert await output(sandbox, "cat f") == "hi"
        assert boxes.created == [{"app": "app tests True", "timeout": 600, "cpu": 2.0, "memory": 512}]


async def test_an_execution_that_fails_is_repeated_and_the_command_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand_in(monkeypatch) as (sandboxes, _, boxes), sandboxes.open(SandboxSpec()) as sandbox:
        boxes.fail_next = 2
        assert await output(sandbox, "echo x >> f; cat f") == "x"
        await boxes.end("box1")
        with pytest.raises(SandboxError, match="the sandbox has gone"):
            await run(sandbox, "true")


@pytest.mark.parametrize("after_s", [0.01, 0.3, 1.5])
async def test_d11_cancelled_at_any_moment_the_sandbox_is_deleted(
    monkeypatch: pytest.MonkeyPatch, after_s: float
) -> None:
    async with stand_in(monkeypatch) as (sandboxes, _, boxes):
        with anyio.move_on_after(after_s):
            async with sandboxes.open(SandboxSpec()) as sandbox:
                await run(sandbox, "sleep 3951")
        assert boxes.live == {}


async def test_wrong_credentials_are_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand_in(monkeypatch) as (sandboxes, module, _):
        for error, kind, text in (
            (modal.exception.AuthError("no token"), ConfigError, "run `modal token set`"),
            (modal.exception.ConnectionError("down"), SandboxError, "the provider made no sandbox: down"),
        ):
            module.refuse = error
            with pytest.raises(kind, match=text):
                async with sandboxes.open(SandboxSpec()):
                    pass


def test_the_package_takes_the_calls_that_the_adapter_makes() -> None:
    """The stand-in is only worth what it has in common with the package."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (modal.App.lookup, ("name",), {"create_if_missing": True}),
        (modal.Sandbox.create, (), {"app": None, "timeout": 1}),
        (modal.Sandbox.exec, (None, "python3", "-I"), {"timeout": 1}),
        (modal.Sandbox.terminate, (None,), {}),
        (import_module("modal.sandbox.sandbox").SandboxFilesystem.write_bytes, (None, b"", "/p"), {}),
    ]
    for function, arguments, options in calls:
        assert callable(function.aio)
        inspect.signature(function).bind(*arguments, **options)
