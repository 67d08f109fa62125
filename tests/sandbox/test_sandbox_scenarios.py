"""What goes wrong between an agent and its shell elsewhere, tried on real local and remote sandboxes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.serving import serve_sandboxes
from obsspec.sandbox.spec import SandboxSpec, TerminalSandbox
from tests.sandbox.support import eventually, gone, host_processes, output, run

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
TIMEOUT_S = 1.0


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def opened(place: str, max_characters: int = 10_000) -> AsyncGenerator[TerminalSandbox]:
    if place == "local":
        async with LocalSandboxes(TIMEOUT_S, max_characters).open(SandboxSpec()) as sandbox:
            yield sandbox
        return
    async with (
        serve_sandboxes(latency="0", timeout_s=TIMEOUT_S, max_characters=max_characters) as sandboxes,
        sandboxes.open(SandboxSpec()) as sandbox,
    ):
        yield sandbox


async def test_c01_timeout_kills_the_process_group(place: str) -> None:
    async with opened(place) as sandbox:
        observation = await run(sandbox, "while :; do : c01-timeout; done")
        assert observation.timed_out
        assert await gone("c01-timeout")
        began = time.monotonic()
        assert await output(sandbox, "echo next") == "next"
        assert time.monotonic() - began < 0.7


async def test_c01_timeout_kills_what_left_the_process_group(place: str) -> None:
    async with opened(place) as sandbox:
        await run(sandbox, "setsid sh -c 'sleep 3611' & (setsid sleep 3612 &); sleep 3613")
        assert await gone("sleep 361")


async def test_c01_timeout_spares_background_jobs_of_earlier_commands(place: str) -> None:
    async with opened(place) as sandbox:
        await run(sandbox, "sleep 3621 &")
        assert (await run(sandbox, "sleep 3622")).timed_out
        assert len(host_processes("sleep 362")) == 1
        assert await output(sandbox, "grep -asl '362[1]' /proc/[0-9]*/cmdline | wc -l") == "1"
    assert await gone("sleep 362")


async def test_c01_cancelling_the_call_kills_what_it_started(place: str) -> None:
    async with opened(place) as sandbox:
        await run(sandbox, "kept=1")
        with anyio.move_on_after(0.4):
            await run(sandbox, "kept=2; setsid sleep 3631 & while :; do : c01-cancel; done")
        assert await eventually(lambda: host_processes("sleep 3631") + host_processes("c01-cancel") == [])
        assert await output(sandbox, "echo $kept") == "1"  # the sandbox lives on, with the state of before


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_c01_cancelling_at_any_moment_keeps_requests_and_answers_in_pairs(backend: str) -> None:
    """Before the request leaves, while it runs, as it ends: the next answer is always that of the next command."""

    async def main() -> None:
        async with LocalSandboxes(TIMEOUT_S).open(SandboxSpec()) as sandbox:
            for number in range(40):
                with anyio.move_on_after(0.0007 * number):
                    await run(sandbox, "sleep 0.01; echo late")
                if number % 2:
                    assert await output(sandbox, f"echo {number}") == str(number)

    anyio.run(main, backend=backend)


async def test_c02_timeout_with_much_output_does_not_deadlock(place: str) -> None:
    async with opened(place) as sandbox:
        began = time.monotonic()
        observation = await run(sandbox, "cat /dev/zero & cat /dev/zero >&2")
        assert time.monotonic() - began < TIMEOUT_S + 1.5
        assert observation.timed_out
        assert observation.truncated
        assert await output(sandbox, "echo next") == "next"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & echo done",
        "sleep 60 >/dev/null & echo done",
        "setsid sleep 60 & echo done",
        "(sleep 60 &); echo done",
        "sleep 60 | cat & echo done",
        "nohup sleep 60 & echo done",
    ],
)
async def test_c04_a_background_child_does_not_hold_the_call(command: str) -> None:
    async with opened("local") as sandbox:
        began = time.monotonic()
        observation = await run(sandbox, command)
        assert time.monotonic() - began < 1
        assert observation.text.splitlines()[0] == "done"
        assert not observation.timed_out


async def test_c04_survivors_go_on_and_their_later_output_is_dropped() -> None:
    async with opened("local") as sandbox:
        await run(sandbox, "(for i in $(seq 1 10); do echo noise; sleep 0.02; done; echo end > late) & echo done")
        assert (await run(sandbox, "echo quiet")).text == "quiet\n(exit_code=0)"
        assert await output(sandbox, "until [ -e late ]; do sleep 0.02; done; cat late") == "end"


async def test_c04_output_of_process_substitution_is_not_lost() -> None:
    async with opened("local") as sandbox:
        assert await output(sandbox, "echo through > >(sed s/^/tee:/)") == "tee:through"


@pytest.mark.parametrize(
    ("command", "first_line"),
    [
        ("cat", "(no output)"),
        ("read -p x y || echo empty", "empty"),
        ("python3 || true", "(no output)"),
        ("wc -c", "0"),
        ("cat <<< here", "here"),
        ("echo piped | cat", "piped"),
        ("cat <<EOF\nlines\nEOF", "lines"),
        ("while read l; do echo $l; done < /etc/hostname", "sandbox"),
    ],
)
async def test_c05_stdin_is_empty_and_redirections_work(command: str, first_line: str) -> None:
    async with opened("local") as sandbox:
        observation = await run(sandbox, command)
        assert observation.text.splitlines()[0] == first_line
        assert not observation.timed_out


async def test_c08_a_slow_command_is_an_observation(place: str) -> None:
    async with opened(place) as sandbox:
        observation = await run(sandbox, "sleep 5")
        assert observation.text == "(no output)\n(timed out after 1 s)\n(shell state changes lost)\n(exit_code=124)"
        assert observation.timed_out
        assert observation.exit_code == 124
        assert await output(sandbox, "echo next") == "next"


async def test_c09_output_before_the_timeout_is_kept(place: str) -> None:
    async with opened(place) as sandbox:
        observation = await run(sandbox, "echo a; echo b >&2; sleep 10")
        assert observation.timed_out
        assert observation.text.splitlines()[:3] == ["a", "b", "(timed out after 1 s)"]


async def test_c12_quoted_heredocs_reach_the_shell_byte_for_byte(place: str) -> None:
    body = (
        "$x `date` $(date) \\n \\\\ 'single' \"double\"\n< starts with less\n\ttab, trailing  \n#!/bin/sh !! %s é 語\n"
    )
    async with opened(place) as sandbox:
        await output(sandbox, f"x=wrong; cat > f <<'EOF'\n{body}EOF")
        assert (await sandbox.tree())["f"].content == body.encode()


async def test_c12_strange_commands_are_observations() -> None:
    async with opened("local") as sandbox:
        assert (await run(sandbox, "")).text == "(no output)\n(exit_code=0)"
        assert (await run(sandbox, "echo a\0b")).exit_code == 126
        assert (await run(sandbox, "echo " + "x" * 200_000)).exit_code == 126  # too long for one argument
        assert (await run(sandbox, "echo '\udc80'")).exit_code == 0
        assert (await run(sandbox, "ls )")).exit_code == 2
        assert (await run(sandbox, "-c echo")).exit_code == 127
        assert await output(sandbox, "true\n# a comment") == "(no output)"


async def test_b01_invalid_utf8_from_a_real_command(place: str) -> None:
    async with opened(place) as sandbox:
        observation = await run(sandbox, r"printf 'ok\xff\xfe\n'")
        assert observation.text == "ok\ufffd\ufffd\n(exit_code=0)"
        assert observation.raw == b"ok\xff\xfe\n"
        assert (await run(sandbox, "head -c 4096 /dev/urandom")).exit_code == 0
        assert "\ufffd" in (await run(sandbox, "python3 -c 'import os; os.write(1, b\"\\xed\\xa0\\x80\")'")).text


@pytest.mark.parametrize(("size", "truncated"), [(999, False), (1000, False), (1001, True)])
async def test_b02_output_at_the_limit(size: int, truncated: bool) -> None:
    async with opened("local", max_characters=1000) as sandbox:
        observation = await run(sandbox, f"head -c {size} /dev/zero | tr '\\0' x")
        assert observation.truncated is truncated
        assert observation.text.startswith("x" * min(size, 1000) + "\n")


async def test_b02_a_gigabyte_of_output_needs_little_memory() -> None:
    async with LocalSandboxes(timeout_s=60).open(SandboxSpec()) as sandbox:
        observation = await run(sandbox, "yes | head -c 1G; grep VmHWM /proc/1/status > peak")
        assert observation.truncated
        assert observation.exit_code == 0
        assert len(observation.raw) <= 1 << 19
        peak_kib = int((await sandbox.tree())["peak"].content.split()[1])
        assert peak_kib < 40_000


async def test_b06_redraws_through_a_real_pipe() -> None:
    async with opened("local") as sandbox:
        command = r"for i in $(seq 1000); do printf '\r\033[K%d %%' $i; done; printf '\r\n\033[?25hdone\r\n'"
        assert await output(sandbox, command) == "1000 %\ndone"


async def test_b10_volatile_output_stays_volatile() -> None:
    async with opened("local") as sandbox:
        assert (await run(sandbox, "date +%N")).text != (await run(sandbox, "date +%N")).text
