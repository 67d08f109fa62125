"""What a machine may lack is said in one line that names the thing and the fix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from obsspec.sandbox import bubblewrap, rootfs
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.values import ConfigError, SandboxError
from tests.sandbox.support import output

pytestmark = [pytest.mark.sandbox]

OPEN = """
import anyio
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError, ToolCall
async def main():
    try:
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            print(f"{(await sandbox.execute(ToolCall('shell', {'command': COMMAND}))).text}")
    except ConfigError as error:
        print(f"ConfigError: {error}")
anyio.run(main)
"""


def in_child(prefix: Sequence[str], command: str = "true") -> str:
    arguments = [*prefix, sys.executable, "-c", f"COMMAND = {command!r}\n{OPEN}"]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.mark.anyio
async def test_missing_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "PACKAGE", "no-such-package")
    bubblewrap.find_bubblewrap.cache_clear()
    try:
        with pytest.raises(ConfigError, match="bubblewrap is missing: install it with"):
            async with LocalSandboxes().open(SandboxSpec()):
                pass
    finally:
        bubblewrap.find_bubblewrap.cache_clear()


@pytest.mark.anyio
async def test_bubblewrap_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: tmp_path / "bwrap")
    with pytest.raises(ConfigError, match=r"cannot start .*: install it with") as caught:
        async with LocalSandboxes().open(SandboxSpec()):
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs util-linux")
def test_disabled_user_namespaces() -> None:
    """In a user namespace where the number of further ones is 0."""
    off = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
        "-",
    ]
    said = in_child(off)
    assert said.startswith("ConfigError: bubblewrap cannot make a sandbox (")
    assert "max_user_namespaces" in said
    assert "\n" not in said


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become somebody else")
def test_an_ordinary_user_has_sandboxes_too() -> None:
    prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--"]
    if subprocess.run([*prefix, sys.executable, "-c", "import obsspec"], capture_output=True, check=False).returncode:
        pytest.skip("this Python cannot be read by others")
    said = in_child(
        prefix, "id -un; echo x > f; cat f; ulimit -u; kill -9 1; unshare -Ur true 2>/dev/null || echo alive"
    )
    assert said.splitlines() == ["user", "x", "128", "alive", "(exit_code=0)"]


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs util-linux")
def test_root_of_a_small_container_has_sandboxes_too() -> None:
    """Root that can map only itself falls back to one user in the sandbox."""
    said = in_child(["unshare", "--user", "--map-root-user"], "id -un; echo x > f; cat f; kill -9 1; echo alive")
    assert said.splitlines() == ["user", "x", "alive", "(exit_code=0)"]


@pytest.mark.anyio
async def test_port_in_use() -> None:
    async with serve_sandboxes(latency="0") as sandboxes:
        port = int(sandboxes.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"port {port} of the sandbox server is in use: choose another"):
            async with serve_sandboxes(port=port):
                pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": 0.0}, "time limit of a command is 0 s"),
        ({"max_characters": 0}, "may have 0 characters"),
    ],
)
def test_nonsense_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalSandboxes(**options)


def test_nonsense_limits() -> None:
    with pytest.raises(ConfigError, match="disk_bytes is 0: it must be at least 1"):
        Limits(disk_bytes=0)


@pytest.mark.parametrize("path", ["../up", "/etc/x", "a/../../b", "a\0b"])
@pytest.mark.anyio
async def test_paths_that_leave_home(path: str) -> None:
    with pytest.raises(SandboxError, match="cannot make the sandbox"):
        async with LocalSandboxes().open(SandboxSpec(files=(FileSpec(path, b""),))):
            pass


@pytest.mark.anyio
async def test_nonsense_latency_is_reported_by_the_parent() -> None:
    with pytest.raises(ConfigError, match="latency 'soon' is not understood"):
        async with serve_sandboxes(latency="soon"):
            pass


@pytest.mark.anyio
async def test_the_sqlite_stand_in_is_installed_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != "/usr/bin/sqlite3" and exists(path))
    rootfs.root_directory.cache_clear()
    try:
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            assert await output(sandbox, "command -v sqlite3") == "/opt/bin/sqlite3"
            assert (
                await output(sandbox, "sqlite3 a.db 'create table t(a, b); insert into t values (1, null)'")
                == "(no output)"
            )
            assert await output(sandbox, "sqlite3 a.db <<< 'select *, 2.5 from t;'") == "1||2.5"
    finally:
        monkeypatch.undo()
        rootfs.root_directory.cache_clear()
