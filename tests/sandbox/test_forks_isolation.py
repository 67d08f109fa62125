"""A fork is as isolated as a sandbox, from this machine and from the other forks, also where its commands are root."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path

import anyio
import pytest

from obsspec.sandbox import identity
from obsspec.sandbox.fork import Fork
from obsspec.sandbox.forks import ForkIdentity, open_forks
from obsspec.sandbox.placed import PlacedFile
from obsspec.sandbox.spec import EntryKind, SandboxSpec
from obsspec.values import ConfigError, SandboxError
from tests.sandbox.support import host_processes, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
ROOT = ForkIdentity(root=True, directory="/testbed")
TREE = (
    PlacedFile("/testbed", kind=EntryKind.DIRECTORY),
    PlacedFile("/testbed/pkg/a.py", b"print('a')\n", mtime_ns=1_600_000_000 * 10**9),
    PlacedFile("/testbed/run", b"#!/bin/sh\nid -un\n", 0o755, owned_by_root=False),
    PlacedFile("/etc/app.conf", b"x=1\n"),
    PlacedFile("/testbed/link", b"pkg/a.py", kind=EntryKind.LINK),
)


async def said(fork: Fork, command: str) -> str:
    result = await fork.execute(shell(command))
    return (result.stdout + result.stderr).decode().rstrip("\n")


async def must_fail(fork: Fork, *commands: str) -> None:
    for command in commands:
        assert (await fork.execute(shell(command))).exit_code != 0, command


async def common_promises(fork: Fork, directory: Path) -> None:
    """What no command may do, whoever runs it."""
    await must_fail(fork, f"ls {directory}", f"ls /proc/1/root{directory}", "cat /etc/shadow", "ls /proc/1/cwd/work")
    await must_fail(
        fork,
        "mount -t tmpfs none /tmp",
        "mount --bind / /tmp",
        "umount /usr",
        "umount /proc",
        "mount -o remount,rw /usr",
        "unshare -Ur true",
        "unshare -m true",
        "nsenter -t 1 -m true",
        "touch /usr/probe",
        "mknod /tmp/disk b 254 0",
        "echo 1 > /proc/sys/user/max_user_namespaces",
        "echo 1 > /proc/sys/kernel/ns_last_pid",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "head -c 1 /dev/vda || head -c 1 /dev/sda",
        "ls /run/obsspec/..*/layers",
        "python3 -c 'import os; os.setuid(61000)'",
    )
    await fork.execute(shell(f"kill -9 1; kill -9 {os.getpid()}"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "Connection refused" in await said(fork, f"exec 3<>/dev/tcp/127.0.0.1/{port}")
        assert "Network is unreachable" in await said(fork, "exec 3<>/dev/tcp/192.0.2.1/80")


async def test_a_fork_reaches_nothing_outside_it(tmp_path: Path) -> None:
    async with open_forks(SandboxSpec()) as forks:
        fork = await forks.root.fork()
        await common_promises(fork, tmp_path)
        await must_fail(fork, "touch /etc/x", "touch /x", "touch /opt/x")
        status = await said(fork, "grep -E 'Cap(Prm|Eff|Amb)|NoNew' /proc/self/status")
        assert status.split()[1::2] == [*["0" * 16] * 3, "1"]


async def test_root_of_a_fork_is_nobody_outside_it(tmp_path: Path) -> None:
    async with open_forks(SandboxSpec(), tree=TREE, identity=ROOT) as forks:
        fork = await forks.root.fork()
        await common_promises(fork, tmp_path)
        assert await said(fork, "id -u; touch /etc/x /x /opt/x && chown 1000:1000 /x && stat -c %U:%G /x /etc") == (
            "0\nuser:user\nroot:root"
        )
        await fork.execute(shell("sleep 3911 &"))
        (process,) = host_processes("sleep 3911")
        uid = int((Path("/proc") / str(process) / "status").read_text().split("Uid:")[1].split()[0])
        assert uid not in (0, os.getuid()) or not identity.two_users()


async def test_forks_see_no_files_and_no_processes_of_each_other() -> None:
    async with open_forks(SandboxSpec(), tree=TREE, identity=ROOT) as forks:
        one, two = await forks.root.fork(), await forks.root.fork()
        await one.execute(shell("echo s3cret > /testbed/secret; python3 -m http.server 8123 & sleep 3921 &"))
        assert await said(two, "ls /testbed; pgrep -c sleep") == "link\npkg\nrun\n0"
        assert "refused" in await said(two, "exec 3<>/dev/tcp/127.0.0.1/8123")
        assert await said(two, "grep -rl s3cret / --exclude-dir={proc,sys,usr,python} 2>/dev/null") == ""
        assert await said(two, "find / -xdev -name layers -o -xdev -name secret") == ""


async def test_a_tree_is_laid_down_and_grows() -> None:
    async with open_forks(SandboxSpec(), tree=TREE, identity=ROOT) as forks:
        assert await said(forks.root, "pwd; whoami; echo $HOME; cat link /etc/app.conf; ./run") == (
            "/testbed\nroot\n/root\nprint('a')\nx=1\nroot"
        )
        assert await said(forks.root, "stat -c '%a %U %Y' pkg/a.py run . ") == (
            f"644 root 1600000000\n755 {'user' if identity.two_users() else 'root'} 1735689600\n755 root 1735689600"
        )
        fork = await forks.root.fork()
        await fork.write([PlacedFile("/app/new/file", b"1"), PlacedFile("/testbed/link", b"no link now")])
        assert await said(fork, "cat /app/new/file link; ls -ld /app/new | cut -c1-10") == "1no link nowdrwxr-xr-x"
        assert (
            await said(forks.root, "ls /app 2>&1; cat pkg/a.py")
            == "ls: cannot access '/app': No such file or directory\nprint('a')"
        )
        deeper = await fork.fork()
        await said(deeper, "rm -r /app; echo x >> /etc/app.conf; cd /etc; export y=1")
        last = await deeper.fork()
        assert (await said(last, "pwd; echo $y; cat app.conf; ls -d /app")).startswith(
            "/etc\n1\nx=1\nx\nls: cannot access"
        )
        assert await said(fork, "ls /app") == "new"


async def test_a_tree_with_an_ordinary_user() -> None:
    async with open_forks(SandboxSpec(), tree=TREE, identity=ForkIdentity(directory="/testbed")) as forks:
        fork = await forks.root.fork()
        assert (
            await said(fork, "pwd; id -un; cat pkg/a.py; echo mine > run && cat run")
            == "/testbed\nuser\nprint('a')\nmine"
        )
        if identity.two_users():
            await must_fail(fork, "echo x > /etc/app.conf", "touch /testbed/x")


async def test_wrong_places_are_clear_errors() -> None:
    with pytest.raises(ConfigError, match="not absolute"):
        PlacedFile("testbed/a")
    with pytest.raises(ConfigError, match="neither file"):
        PlacedFile("/a", kind=EntryKind.OTHER)
    async with open_forks(SandboxSpec()) as forks:
        with pytest.raises(SandboxError, match="Read-only file system: '/testbed'"):
            await forks.root.write([PlacedFile("/testbed/a", b"")])
        assert await said(forks.root, "echo fine") == "fine"


ONE_USER = """
import anyio
from obsspec.sandbox import identity
from obsspec.sandbox.forks import ForkIdentity, open_forks
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.placed import PlacedFile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ToolCall
COMMANDS = ["id; ls -la /home /etc ~ /tmp; echo $$ $PPID; grep Cap[IPEA] /proc/self/status; cat /proc/self/uid_map",
            "echo a > f; chmod 000 f; mkdir -m 0 d; x=1; cd /tmp", "ls -la ~; echo $x; pwd; echo $$"]
ESCAPES = "unshare -Ur true || mount -t tmpfs x /tmp || umount /proc || touch /usr/x || nsenter -t 1 -m true"
def call(command): return ToolCall("shell", {"command": command})
async def main():
    assert not identity.two_users()
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        expected = [await sandbox.run(call(command)) for command in COMMANDS]
    async with open_forks(SandboxSpec()) as forks:
        fork = forks.root
        for command, result in zip(COMMANDS, expected):
            fork = await fork.fork()
            got = await fork.execute(call(command))
            assert got.stdout == result.stdout, (got, result)
        assert (await fork.execute(call(ESCAPES))).exit_code != 0
    async with open_forks(SandboxSpec(), tree=[PlacedFile("/app/f", b"f")], identity=ForkIdentity(root=True)) as forks:
        fork = await forks.root.fork()
        result = await fork.execute(call("id -u; touch /etc/x && cat /app/f"))
        assert result.stdout == b"0\\nf", result
        assert (await fork.execute(call(ESCAPES))).exit_code != 0
    print("fine")
anyio.run(main)
"""


NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--")
SMALL_CONTAINER = ("unshare", "--user", "--map-root-user")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become somebody else")
@pytest.mark.parametrize("prefix", [NOBODY, SMALL_CONTAINER], ids=["ordinary user", "root of a small container"])
async def test_forks_work_with_one_user(prefix: tuple[str, ...]) -> None:
    if (await anyio.run_process([*prefix, sys.executable, "-c", "import obsspec"], check=False)).returncode:
        pytest.skip("this Python cannot be read by others")
    done = await anyio.run_process([*prefix, sys.executable, "-c", ONE_USER], check=False)
    assert done.stdout == b"fine\n", done.stderr.decode()[-2000:]
