"""A sandbox sees nothing of this machine but /usr, changes nothing of it, is limited, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from obsspec.sandbox.limits import MIB, Limits
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import SandboxError
from tests.sandbox.support import eventually, gone, host_processes, output, run

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


async def test_there_is_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            observation = await run(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{port}")
            assert "Connection refused" in observation.text
            observation = await run(sandbox, "exec 3<>/dev/tcp/192.0.2.1/80")
            assert "Network is unreachable" in observation.text
            assert await output(sandbox, "cat /proc/net/dev | tail -n +3 | cut -d: -f1") == "    lo"


async def test_nothing_outside_home_and_tmp_can_be_written() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        for directory in ("/", "/usr", "/usr/bin", "/etc", "/opt/bin", "/opt/obsspec/inside", "/dev", "/home", "/var"):
            observation = await run(sandbox, f"touch {directory}/probe")
            assert observation.exit_code != 0, directory
            assert not os.path.exists(f"{directory}/probe")  # noqa: PTH110, ASYNC240
        assert (
            await run(sandbox, "echo x > /etc/passwd || rm -f /usr/bin/env; rm -rf /usr/bin/bash /opt/bin")
        ).exit_code != 0
        assert await output(sandbox, "touch ~/a /tmp/b && echo fine") == "fine"
        assert (await run(sandbox, "mount -t tmpfs none /tmp")).exit_code != 0
        assert (await run(sandbox, "head -c 1 /dev/vda || head -c 1 /dev/sda || cat /dev/kmsg")).exit_code != 0


async def test_files_of_this_machine_are_invisible(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        for path in (
            tmp_path / "secret",
            Path("/etc/shadow"),
            Path("/proc/1/root/etc/shadow"),
            Path.home() / ".bashrc",
        ):
            assert (await run(sandbox, f"cat {path}")).exit_code != 0, path
        assert await output(sandbox, "ls -A /tmp; ls /home") == "user"


async def test_processes_of_this_machine_are_invisible_and_out_of_reach() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        processes = (await output(sandbox, "ls -d /proc/[0-9]* | wc -l; hostname")).split()
        assert int(processes[0]) <= 5
        assert processes[1] == "sandbox"
        await run(sandbox, f"kill -9 {os.getpid()}")


async def test_commands_cannot_kill_their_sandbox() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "kill -9 1; kill -9 -1; kill -TERM 1; kill -INT 1")
        assert await output(sandbox, "echo alive") == "alive"


async def test_commands_gain_no_privileges() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        status = await output(sandbox, "grep -E '^(CapEff|CapPrm|CapAmb|NoNewPrivs)' /proc/self/status")
        assert status.split() == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "CapAmb:", "0" * 16, "NoNewPrivs:", "1"]


async def test_commands_cannot_make_namespaces_to_escape_the_limits() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        for command in ("unshare -Ur true", "unshare -Urm mount -t tmpfs x /home", "unshare -n true"):
            assert (await run(sandbox, command)).exit_code != 0, command
        assert (await run(sandbox, "echo 9 > /proc/sys/user/max_user_namespaces")).exit_code != 0


async def test_the_memory_limit_bites() -> None:
    async with LocalSandboxes(limits=Limits(memory_bytes=256 * MIB)).open(SandboxSpec()) as sandbox:
        assert await output(sandbox, "python3 -c 'print(len(bytearray(100 << 20)))'") == str(100 << 20)
        observation = await run(sandbox, "python3 -c 'bytearray(300 << 20)'")
        assert "MemoryError" in observation.text


async def test_the_processor_limit_ends_busy_background_jobs() -> None:
    async with LocalSandboxes(limits=Limits(cpu_s=1)).open(SandboxSpec()) as sandbox:
        await run(sandbox, "(while :; do : busy-3701; done) & echo started")
        assert len(host_processes("busy-3701")) == 1
        assert await eventually(lambda: host_processes("busy-3701") == [], seconds=20)


async def test_the_process_limit_bites() -> None:
    async with LocalSandboxes(timeout_s=2, limits=Limits(processes=20)).open(SandboxSpec()) as sandbox:
        observation = await run(sandbox, "for i in $(seq 50); do sleep 3711 & done 2>&1; wait")
        assert "Resource temporarily unavailable" in observation.text
        assert len(host_processes("sleep 3711")) == 0  # it timed out
        assert await output(sandbox, "echo alive") == "alive"


async def test_a_fork_bomb_ends_with_the_sandbox() -> None:
    async with LocalSandboxes(timeout_s=1, limits=Limits(processes=40)).open(SandboxSpec()) as sandbox:
        await run(sandbox, "bomb() { bomb | bomb & }; bomb; sleep 10 # fork-bomb-3721")
        assert await gone("fork-bomb-3721")
        assert await output(sandbox, "echo alive") == "alive"


async def test_the_disk_limits_bite() -> None:
    limits = Limits(disk_bytes=8 * MIB, file_bytes=4 * MIB)
    async with LocalSandboxes(limits=limits).open(SandboxSpec()) as sandbox:
        assert "File size limit exceeded" in (await run(sandbox, "head -c 5M /dev/zero > big")).text or (
            await sandbox.tree()
        )["big"].content == bytes(4 * MIB)
        for directory, most in (("/home/user", 8), ("/tmp", 8), ("/dev/shm", 8)):
            fill = f"cd {directory}; for i in $(seq 10); do head -c 3M /dev/zero > f$i || break; done; rm -f big"
            assert "No space left" in (await run(sandbox, fill)).text
            assert int(await output(sandbox, f"du -sm {directory} | cut -f1")) <= most
        assert await output(sandbox, "x=1; cd ~; rm -f *; echo ok > f; cat f") == "ok"


async def test_a_tree_that_is_too_large_is_a_clear_error() -> None:
    async with LocalSandboxes(limits=Limits(tree_bytes=1000)).open(SandboxSpec()) as sandbox:
        await output(sandbox, "head -c 1001 /dev/zero > f")
        with pytest.raises(SandboxError, match="more than 1000 bytes"):
            await sandbox.tree()
        await output(sandbox, "head -c 1000 /dev/zero > f")
        assert len((await sandbox.tree())["f"].content) == 1000


async def test_a_sandbox_that_dies_or_is_closed_is_a_sandbox_error() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "sleep 3725 &")
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()  # noqa: ASYNC240
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
        with pytest.raises(SandboxError):  # noqa: PT012 - the init may answer once more before its parent's death reaches it
            for _ in range(100):
                await run(sandbox, "echo nobody")
        with pytest.raises(SandboxError):
            await sandbox.tree()
    assert await gone("sleep 3725")
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        pass
    with pytest.raises(SandboxError):
        await run(sandbox, "echo nobody")


async def test_nothing_is_alive_after_closing() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "sleep 3731 & setsid sleep 3731 & nohup sleep 3731 & (trap '' TERM HUP; sleep 3731) &")
        assert len(host_processes("sleep 3731")) >= 4
    assert await gone("sleep 3731")


async def test_nothing_is_alive_after_an_error_or_a_cancellation() -> None:
    with suppress(ZeroDivisionError):
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            await run(sandbox, "sleep 3741 &")
            raise ZeroDivisionError
    with anyio.move_on_after(0.6) as scope:
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            await run(sandbox, "sleep 3742 & sleep 3743")
    assert scope.cancelled_caught
    assert await gone("sleep 374")


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08])
async def test_cancelling_the_opening_leaves_nothing(after_s: float) -> None:
    before = open_files()
    with anyio.move_on_after(after_s):
        async with LocalSandboxes().open(SandboxSpec(setup=("sleep 3751",))):
            pass
    assert await gone("sleep 3751")
    assert await eventually(lambda: open_files() <= before)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


KILLED = """
import os, signal, anyio
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ToolCall
async def main():
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await sandbox.execute(ToolCall("shell", {"command": "setsid sleep 37" "61 & sleep 37" "61 &"}))
        print("ready", flush=True)
        await anyio.sleep(60)
anyio.run(main)
"""


async def test_nothing_is_alive_after_the_owner_was_killed() -> None:
    async with await anyio.open_process([sys.executable, "-c", KILLED]) as owner:
        assert owner.stdout is not None
        assert (await owner.stdout.receive()).strip() == b"ready"
        assert len(host_processes("sleep 3761")) == 2
        owner.kill()
    assert await gone("sleep 3761")


async def test_many_sandboxes_at_once_do_not_see_each_other() -> None:
    async def one(number: int) -> None:
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            await output(sandbox, f"echo {number} > mine; echo {number} > /tmp/mine")
            await anyio.sleep(0.1)
            assert await output(sandbox, "cat mine /tmp/mine; ls | wc -l") == f"{number}\n{number}\n1"

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)


async def test_sandboxes_work_whatever_the_umask_of_their_owner_is() -> None:
    program = (
        "import anyio, os; os.umask(0o077)\n"
        "from obsspec.sandbox.local import LocalSandboxes\n"
        "from obsspec.sandbox.spec import SandboxSpec\n"
        "from obsspec.values import ToolCall\n"
        "async def main():\n"
        "    async with LocalSandboxes().open(SandboxSpec()) as sandbox:\n"
        "        print((await sandbox.execute(ToolCall('bash', {'command': 'echo fine; pwd'}))).text)\n"
        "anyio.run(main)\n"
    )
    done = await anyio.run_process([sys.executable, "-c", program])
    assert done.stdout.decode().split() == ["fine", "/home/user", "(exit_code=0)"]
