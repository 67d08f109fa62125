"""What the sandbox tests share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import anyio

from obsspec.sandbox.spec import TerminalSandbox
from obsspec.values import Observation, ToolCall


def shell(command: str) -> ToolCall:
    return ToolCall("shell", {"command": command})


async def run(sandbox: TerminalSandbox, command: str) -> Observation:
    return await sandbox.execute(shell(command))


async def output(sandbox: TerminalSandbox, command: str) -> str:
    """What the command printed; it must end with 0."""
    observation = await run(sandbox, command)
    assert observation.exit_code == 0, observation.text
    return observation.text.removesuffix("(exit_code=0)").rstrip("\n")


def host_processes(marker: str) -> list[int]:
    """Processes of this machine, those in sandboxes included, with `marker` in their command line."""
    found: list[int] = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                line = (directory / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if marker.encode() in line:
                found.append(int(directory.name))
    return found


async def eventually(condition: Callable[[], bool], seconds: float = 3.0) -> bool:
    """Real processes die in real time: poll until `condition` holds or `seconds` are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await anyio.sleep(0.02)
    return condition()


async def gone(marker: str) -> bool:
    """Whether no process with `marker` is left. What was killed, or was in a sandbox whose first process has ended,
    takes the kernel a moment."""
    return await eventually(lambda: host_processes(marker) == [])
