"""The command, as a process of its own."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from obsspec.integrations.proxy.settings import ServeSettings
from obsspec.values import ConfigError
from tests.integrations.proxy.engine import Agent, Engine, wait_for
from tests.policy.loopback import loopback

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(upstream: str, *options: str) -> AsyncGenerator[tuple[Process, str, BufferedByteReceiveStream], None]:
    command = [sys.executable, "-m", "obsspec.cli", "serve", "--upstream", upstream, "--port", "0", *options]
    process = await anyio.open_process(command, stderr=-2)
    assert process.stdout is not None
    output = BufferedByteReceiveStream(process.stdout)
    try:
        with anyio.fail_after(60):
            line = await output.receive_until(b"\n", 4096)
        found = re.match(rb"(http://\S+)/v1 -> ", line)
        assert found is not None, line
        assert b"very-secret" not in line
        yield process, found[1].decode(), output
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()


async def rest(output: BufferedByteReceiveStream) -> str:
    data = b""
    try:
        while True:
            data += await output.receive()
    except anyio.EndOfStream:
        return data.decode()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_it_serves_until_it_is_told_to_stop_and_says_what_came_of_it(stop: signal.Signals) -> None:
    secret = {"authorization": "Bearer sk-very-secret", "x-goog-api-key": "very-secret"}
    async with loopback(Engine(first_s=0.05)) as server:
        direct = await Agent(server.url, headers=secret).run()
        engine = server.url.replace("//", "//user:very-secret@")
        async with serving(engine, "--no-gate") as (process, url, output):
            assert url.startswith("http://127.0.0.1:")
            for _ in range(2):
                assert await Agent(url, headers=secret).run() == direct
            async with httpx2.AsyncClient(trust_env=False, verify=False) as client, anyio.create_task_group() as tasks:
                await client.get(f"{url}/v1/models?key=very-secret&of=/models")
                metrics = (await client.get(f"{url}/obsspec/metrics")).text
                late = Agent(url, task="late", turns=1)
                tasks.start_soon(late.run)
                await wait_for(
                    lambda: any(r.body["messages"][0]["content"] == "late" for r in server.requests if r.body)
                )
                process.send_signal(stop)
            said = await rest(output)
            await process.wait()
        assert late.answers[0].status == 200
        claimed = re.search(r"obsspec_claimed_total (\d+)", metrics)
        assert claimed is not None
        assert int(claimed[1]) >= 6
        assert "started early / asked for / dropped" in said
        assert "Traceback" not in said
        assert "very-secret" not in said + metrics
        await server.settled()


async def test_shadow_mode_prints_what_would_have_been_gained() -> None:
    async with loopback(Engine(first_s=0.05)) as server, serving(server.url, "--shadow") as (process, url, output):
        for _ in range(2):
            await Agent(url).run()
        process.send_signal(signal.SIGINT)
        said = await rest(output)
        assert "nothing was started early" in said
        assert "would have been hidden" in said
        assert len(server.requests) == 14


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"upstream": "localhost:8000"}, "write http://host:port"),
        ({"upstream": "ftp://x"}, "write http://host:port"),
        ({"world_model": "localhost:8001"}, "--world-model localhost:8001 .* write http://host:port"),
        ({"sessions_mib": 0}, "--sessions-mib must be at least 1"),
        ({"depth": -1}, "--depth must be at least 0"),
        ({"idle_s": 0.0}, "--idle-s must be more than 0"),
        ({"port": 70000}, "--port 70000"),
    ],
)
async def test_wrong_options_are_named(options: dict[str, object], says: str) -> None:
    from obsspec.integrations.proxy.service import open_service

    with pytest.raises(ConfigError, match=says):
        async with open_service(ServeSettings(**{"upstream": "http://127.0.0.1:9", **options})):  # type: ignore[arg-type]
            pass


def test_a_missing_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from obsspec.cli.serve import serve

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in ("metrics", "app", "service", "server"):
        monkeypatch.delitem(sys.modules, f"obsspec.integrations.proxy.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(ConfigError, match=r"pip install 'obsspec\[serve\]'"):
        serve(ServeSettings("http://127.0.0.1:9"))


async def test_a_port_in_use_is_named() -> None:
    from obsspec.integrations.proxy.server import listen

    with listen("127.0.0.1", 0) as listener, pytest.raises(ConfigError, match="in use"):
        listen("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gpu7", False)]
)
def test_it_knows_whether_others_can_reach_it(host: str, local: bool) -> None:
    assert ServeSettings("http://x", host=host).is_local is local
    assert ServeSettings("http://x").is_local
