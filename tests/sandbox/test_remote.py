"""Sandboxes over HTTP: latency on the wire, calls that run once however often they are sent, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator

import anyio
import httpx2
import pytest

from obsspec.sandbox.latency import LatencySpec
from obsspec.sandbox.remote import RemoteSandboxes
from obsspec.sandbox.remote_sandbox import RemoteSandbox
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.sandbox.wire import observation_to_json, seed_of
from obsspec.values import ConfigError, Guard, Observation, SandboxError
from tests.sandbox.support import eventually, gone, host_processes, output, run, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


@pytest.fixture
async def sandboxes() -> AsyncGenerator[RemoteSandboxes]:
    async with serve_sandboxes(latency="0", timeout_s=5) as remote:
        yield remote


async def post(remote: RemoteSandboxes, name: str, sequence: int, command: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=remote.url, trust_env=False, timeout=30) as client:
        return await client.post(f"/sandboxes/{name}/execute", json={"sequence": sequence, "command": command})


async def put(remote: RemoteSandboxes, name: str) -> httpx2.Response:
    spec = {"directories": [], "files": [], "setup": [], "image": ""}
    async with httpx2.AsyncClient(base_url=remote.url, trust_env=False, timeout=30) as client:
        return await client.put(f"/sandboxes/{name}", json=spec)


async def test_sandboxes_behave_as_local_ones(sandboxes: RemoteSandboxes) -> None:
    spec = SandboxSpec(directories=("d",), files=(FileSpec("f", b"\x00\xff", 0o600),), setup=("echo hi > d/g",))
    async with sandboxes.open(spec) as sandbox:
        await run(sandbox, "cd d; x=1")
        assert await output(sandbox, "pwd; echo $x; cat g; touch $'bad\\xff'") == "/home/user/d\n1\nhi"
        tree = await sandbox.tree()
        assert sorted(tree) == ["d", "d/bad\udcff", "d/g", "f"]
        assert (tree["f"].content, tree["f"].mode) == (b"\x00\xff", 0o600)
        assert (await run(sandbox, r"printf '\xff'; exit 3")).raw == b"\xff"
        assert len(sandbox.log) == 3
        with pytest.raises(SandboxError, match="set-up command `false` failed"):
            async with sandboxes.open(SandboxSpec(setup=("false",))):
                pass


async def test_calls_that_were_sent_ahead_are_counted_in_their_order_in_whatever_order_they_answer() -> None:
    sent: list[int] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        data = json.loads(request.content)
        sent.append(data.get("sequence", 0))
        await anyio.sleep(0.1 if data.get("after") == 0 else 0.0)
        return httpx2.Response(200, json=observation_to_json(Observation("x")))

    async with httpx2.AsyncClient(base_url="http://box", transport=httpx2.MockTransport(answer)) as client:
        sandbox = RemoteSandbox(client, "box")
        async with anyio.create_task_group() as tasks:
            for after, command in enumerate(("first", "second")):
                tasks.start_soon(sandbox.execute_if, shell(command), Guard(after, "digest"))
        await sandbox.execute(shell("third"))
    assert sent == [0, 0, 3]
    assert sandbox.log == ["first", "second", "third"]


async def test_latency_is_injected_on_execute_as_drawn() -> None:
    spec = SandboxSpec(image="task")
    async with serve_sandboxes(latency="uniform:0.2,0.6") as remote, remote.open(spec) as sandbox:
        for call in (1, 2):
            expected = LatencySpec.parse("uniform:0.2,0.6").draw(seed_of(spec), call)
            began = time.monotonic()
            await output(sandbox, "true")
            took = time.monotonic() - began
            assert expected <= took < expected + 0.3
        began = time.monotonic()
        await sandbox.tree()
        assert time.monotonic() - began < 0.2


async def test_a_repeated_call_runs_once(sandboxes: RemoteSandboxes) -> None:
    await put(sandboxes, "one")
    first = await post(sandboxes, "one", 1, "echo x >> f; cat f")
    again = await post(sandboxes, "one", 1, "echo x >> f; cat f")
    assert first.json() == again.json()
    assert (await post(sandboxes, "one", 2, "cat f")).json()["text"] == "x\n(exit_code=0)"
    late = await post(sandboxes, "one", 1, "echo x >> f")
    assert late.status_code == 502
    assert "older" in late.json()["error"]


async def test_a_call_repeated_while_it_runs_is_joined_and_survives_the_first_caller(
    sandboxes: RemoteSandboxes,
) -> None:
    await put(sandboxes, "one")
    answers: list[str] = []

    async def ask() -> None:
        answers.append((await post(sandboxes, "one", 1, "sleep 3; echo x >> f; cat f")).json()["text"])

    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(1.5):
            async with anyio.create_task_group() as first:
                first.start_soon(ask)
                await anyio.sleep(0.5)
                tasks.start_soon(ask)
    assert answers == ["x\n(exit_code=0)"]


async def test_hanging_up_kills_what_runs(sandboxes: RemoteSandboxes) -> None:
    await put(sandboxes, "one")
    with anyio.move_on_after(0.5):
        await post(sandboxes, "one", 1, "kept=2; setsid sleep 3811 & sleep 3811")
    assert await gone("sleep 3811")
    assert (await post(sandboxes, "one", 1, "")).json()["error"] == "call 1 was abandoned"
    assert (await post(sandboxes, "one", 2, "echo ${kept-none}")).json()["text"] == "none\n(exit_code=0)"


async def test_opening_twice_is_opening_once(sandboxes: RemoteSandboxes) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(put, sandboxes, "one")
    assert (await sandboxes.about())["sandboxes"] == 1


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06, 0.1])
async def test_cancelling_the_opening_leaves_no_sandbox(sandboxes: RemoteSandboxes, after_s: float) -> None:
    with anyio.move_on_after(after_s):
        async with sandboxes.open(SandboxSpec(setup=("sleep 3821",))):
            pass
    assert (await sandboxes.about())["sandboxes"] == 0
    assert await gone("sleep 3821")


async def test_leaving_waits_until_nothing_is_alive(sandboxes: RemoteSandboxes) -> None:
    async with sandboxes.open(SandboxSpec()) as sandbox:
        await run(sandbox, "setsid sleep 3831 & sleep 3831 &")
        assert len(host_processes("sleep 3831")) == 2
    assert await eventually(lambda: host_processes("sleep 3831") == [], seconds=0.5)
    assert (await sandboxes.about())["sandboxes"] == 0


async def test_many_sandboxes_and_a_slow_one(sandboxes: RemoteSandboxes) -> None:
    """A command that keeps its sandbox busy delays no other."""
    async with sandboxes.open(SandboxSpec()) as slow, anyio.create_task_group() as tasks:
        tasks.start_soon(run, slow, "sleep 3")

        async def one(number: int) -> None:
            async with sandboxes.open(SandboxSpec()) as sandbox:
                await output(sandbox, f"echo {number} > f")
                assert await output(sandbox, "cat f") == str(number)

        began = time.monotonic()
        async with anyio.create_task_group() as quick:
            for number in range(6):
                quick.start_soon(one, number)
        assert time.monotonic() - began < 3
        tasks.cancel_scope.cancel()


async def test_d09_cancelled_calls_keep_no_connections(sandboxes: RemoteSandboxes) -> None:
    async with sandboxes.open(SandboxSpec()) as sandbox:
        for number in range(20):
            with anyio.move_on_after(0.01 + 0.003 * number):
                await run(sandbox, "sleep 3841")
        began = time.monotonic()
        assert await output(sandbox, "echo alive") == "alive"
        assert time.monotonic() - began < 3
    assert await gone("sleep 3841")


async def test_malformed_requests_are_refused_and_harm_nobody(sandboxes: RemoteSandboxes) -> None:
    await put(sandboxes, "one")
    async with httpx2.AsyncClient(base_url=sandboxes.url, trust_env=False) as client:
        for method, path, content in [
            ("PUT", "/sandboxes/two", b"{"),
            ("PUT", "/sandboxes/two", b"{}"),
            ("PUT", "/sandboxes/two", b'{"directories": 1, "files": [], "setup": [], "image": ""}'),
            ("POST", "/sandboxes/one/execute", b"[]"),
            ("POST", "/sandboxes/one/execute", b'{"sequence": "x", "command": ""}'),
        ]:
            response = await client.request(method, path, content=content)
            assert response.status_code == 400, (path, content)
            assert response.json()["kind"] == "request"
        missing = await client.get("/sandboxes/none/tree")
        assert missing.status_code == 502
        assert "no sandbox 'none'" in missing.json()["error"]
    assert (await post(sandboxes, "one", 1, "echo alive")).json()["text"] == "alive\n(exit_code=0)"


async def test_no_server_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"no sandbox server at http://127.0.0.1:9 .*start one with"):
        async with RemoteSandboxes("http://127.0.0.1:9").open(SandboxSpec()):
            pass


async def test_c06_a_server_that_never_answers_meets_our_own_deadline() -> None:
    async def silent(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, silent)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(ConfigError, match="no sandbox server at"):
            await RemoteSandboxes(f"http://127.0.0.1:{port}", answer_s=0.3).about()
        tasks.cancel_scope.cancel()


async def test_a_server_that_dies_is_a_sandbox_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with serve_sandboxes(latency="0", port=port) as remote, remote.open(SandboxSpec()) as sandbox:
        await run(sandbox, "sleep 3851 &")
        for server in host_processes(f"--port {port}"):
            os.kill(server, signal.SIGKILL)
        with pytest.raises(SandboxError, match=r"the sandbox server at .* failed"):
            await run(sandbox, "true")
    assert await gone("sleep 3851")


KILLED = """
import anyio
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ToolCall
async def main():
    async with serve_sandboxes(latency="0") as remote, remote.open(SandboxSpec()) as sandbox:
        await sandbox.execute(ToolCall("shell", {"command": "sleep 38" "61 &"}))
        print(remote.url, flush=True)
        await anyio.sleep(60)
anyio.run(main)
"""


async def test_the_server_ends_when_its_owner_is_killed() -> None:
    async with await anyio.open_process([sys.executable, "-c", KILLED], stderr=None) as owner:
        assert owner.stdout is not None
        url = (await owner.stdout.receive()).decode().strip()
        assert len(host_processes("sleep 3861")) == 1
        owner.kill()
    assert await eventually(lambda: host_processes("sleep 3861") == [], seconds=5)
    with pytest.raises(ConfigError):
        await RemoteSandboxes(url).about()


async def test_the_server_stops_quickly_while_calls_run() -> None:
    async with (
        serve_sandboxes(latency="20") as remote,
        remote.open(SandboxSpec()) as sandbox,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(run, sandbox, "true")
        await anyio.sleep(0.3)
        began = time.monotonic()
        tasks.cancel_scope.cancel()
    assert time.monotonic() - began < 4
