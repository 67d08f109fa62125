"""What a tool call does in the Python replica stays in it, and ends with its rollout."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from obsspec.world.python.fork_server import ForkServer, LostError, open_fork_server
from obsspec.world.python.interpreters import LIMITS, find_interpreter
from obsspec.world.python.outcomes import Engine, Outcome
from obsspec.world.python.replica import PythonReplicas
from tests.sandbox.support import eventually, host_processes
from tests.world.python_support import Play

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[ForkServer]:
    async with open_fork_server(find_interpreter(), replace(LIMITS, processes=40)) as server:
        yield server


async def run(server: ForkServer, code: str, room: int | None = None, limit_s: float = 5.0) -> Outcome:
    """In a room of its own, or in `room`, from the empty state."""
    place = server.new_name() if room is None else room
    try:
        return await server.run(place, 0, server.new_name(), Engine.PLAIN, code, 1, limit_s)
    finally:
        if room is None:
            await server.close(place)


async def test_there_is_no_network(server: ForkServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        outcome = await run(server, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)")
        assert outcome.error == "ConnectionRefusedError"
        outcome = await run(server, "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)")
        assert outcome.error == "OSError"


async def test_only_home_and_tmp_can_be_written(server: ForkServer) -> None:
    base = find_interpreter().mounts
    for directory in ("/", "/usr", "/etc", "/opt/obsspec/repl", "/opt/obsspec/inside", "/dev", "/home", "/proc", *base):
        outcome = await run(server, f"open({directory + '/probe'!r}, 'w')")
        assert outcome.error in ("PermissionError", "OSError", "FileNotFoundError"), directory
        assert not os.path.exists(f"{directory}/probe")  # noqa: PTH110, ASYNC240
    outcome = await run(server, "open('a', 'w'); open('/tmp/b', 'w'); print('fine')")
    assert outcome.out == "fine\n"


async def test_files_of_this_machine_are_invisible(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    for path in (tmp_path / "secret", Path("/etc/shadow"), Path.home() / ".bashrc"):
        assert (await run(server, f"open({str(path)!r}).read()")).error in ("FileNotFoundError", "PermissionError")


async def test_rollouts_see_nothing_of_each_other(server: ForkServer) -> None:
    first, second = server.new_name(), server.new_name()
    await run(server, "open('/tmp/a', 'w').write('x'); open('/home/user/b', 'w')\nimport sys; sys.secret = 1", first)
    seen = await run(
        server, "import os, sys\nprint(os.listdir('/tmp'), os.listdir('.'), hasattr(sys, 'secret'))", second
    )
    assert seen.out == "[] [] False\n"
    killed = await run(server, "import os\nos.kill(-1, 9)\nprint(os.getpid() < 20, os.listdir('/proc'))", second)
    assert killed.out == "True []\n"
    assert (await run(server, "import os; print(os.listdir('/tmp'))", first)).out == "['a']\n"


async def test_no_privilege_is_left(server: ForkServer) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(os.getuid() == os.geteuid() != 0)
for flags in (0x10000000, 0x00020000, 0x20000000):
    print(libc.unshare(flags))
print(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.setuid(0), libc.chroot(b"/tmp"), libc.umount2(b"/proc", 2))
"""
    outcome = await run(server, code)
    assert outcome.out == "True\n-1\n-1\n-1\n-1 -1 -1 -1\n"


async def test_memory_processes_and_files_are_limited(server: ForkServer) -> None:
    assert (await run(server, "x = bytearray(1 << 34)")).error == "MemoryError"
    assert (await run(server, "open('a', 'wb').write(bytes(1 << 26))")).error in ("OSError", "")
    assert (await run(server, "for i in range(5000): open(f'{i}', 'w').close()")).error == "OSError"
    forks = "import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(60)"
    room = server.new_name()
    outcome = await run(server, forks, room)
    assert outcome.error == "BlockingIOError"
    await server.close(room)
    for _ in range(50):  # until the kernel has ended them all
        with suppress(LostError):
            assert (await run(server, "print('alive')")).out == "alive\n"
            return
        await anyio.sleep(0.1)
    raise AssertionError("the other rooms have no processes left")


async def test_nothing_outlives_its_rollout(server: ForkServer) -> None:
    """A rollout that ends takes its processes with it, detached ones included."""
    replicas = PythonReplicas((server,))
    code = (
        "import subprocess\nprocess = subprocess.Popen(['sleep', '4711.25'], start_new_session=True)\nprint('started')"
    )
    async with replicas.open() as replica:
        assert await Play(replica).predict(code) == "started"
        assert await eventually(lambda: bool(host_processes("sleep 4711.25")))
    assert await eventually(lambda: not host_processes("sleep 4711.25"))


async def test_a_hostile_answer_is_an_outcome_like_any_other(server: ForkServer) -> None:
    """Code that writes to the socket of its own state can spoil its own prediction, nothing else."""
    room = server.new_name()
    spoil = "import os\nfor n in range(3, 64):\n    try: os.write(n, b'\\xff' * 64)\n    except OSError: pass"
    with pytest.raises(LostError):
        await run(server, spoil, room)
    assert (await run(server, "print('alive')")).out == "alive\n"
