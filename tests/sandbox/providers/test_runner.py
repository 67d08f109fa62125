"""The runner in a stand-in for a provider's sandbox, over a plain wire: what it does is what a local sandbox does."""

from __future__ import annotations

import anyio
import pytest

from obsspec.history import guard_after
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.providers import call as call_module
from obsspec.sandbox.providers.bundle import PROGRAM, runner
from obsspec.sandbox.providers.machine import RunnerSettings
from obsspec.sandbox.spec import FileSpec, SandboxSpec, TerminalSandbox, Tree
from obsspec.testing.conformance import check_sandbox
from obsspec.values import ConfigError, Exchange, Observation, Refusal, Refused, SandboxError
from tests.sandbox.providers.box import Box, boxes
from tests.sandbox.providers.machines import BoxSandboxes
from tests.sandbox.support import eventually, gone, host_processes, output, run, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
SPEC = SandboxSpec(
    directories=("d/e",), files=(FileSpec("d/f", b"\x00\xff", 0o600),), setup=("cd d && leak=1 && echo hi > g",)
)
TIMEOUT_S = 1.0


def quick() -> BoxSandboxes:
    return BoxSandboxes(RunnerSettings(TIMEOUT_S))


async def running() -> int:
    return sum(len(host_processes(marker)) for marker in ("sleep 1.03125", "sleep 30.03125"))


async def in_box(box: Box, script: str) -> str:
    """What a program beside the runner sees."""
    return (await box.execute(["/bin/bash", "-c", script], 10))[1]


async def test_the_promises_of_sandboxes_and_of_guarded_calls() -> None:
    sandboxes = BoxSandboxes(RunnerSettings(timeout_s=5))
    await check_sandbox(lambda: sandboxes.open(SandboxSpec()), running=running)
    assert await eventually(lambda: boxes() == 0)


# As in a local sandbox -----------------------------------------------------------------------------------------------

COMMANDS = [
    "pwd; ls -lAgG . d; cat d/g; echo ${leak-unset}",
    "cd d; x='a  b'; f() { echo \"f $x\"; }; alias hi='echo hello'; export Y=1; umask 077",
    'pwd; f; hi; bash -c "echo $Y"; touch new; stat -c %a new; echo $-',
    "echo out; echo err >&2; exit 3",
    "echo $?; cat",
    "printf 'a\\tb\\r\\n\\033[1mbold\\033[0m 10%%\\r100%%\\n\\xff \\u00e9 \\n\\n'",
    "cat <<'EOF'\n$x `y` <z\nEOF",
    "seq 1 20000",
    "head -c 600000 /dev/zero",
    "echo before; sleep 30",
    "while :; do :; done",
    "sleep 0.2 & echo started",
    "y=2; kill -9 $$",
    "kill -TERM $$; echo survived",
    "echo ${y-unset} $x; pwd",
    "nul \0 byte",
    "set -euo pipefail; false",
    "ls -lgG --full-time; frobnicate",
    "",
]


async def play(sandbox: TerminalSandbox) -> tuple[list[Observation], Tree]:
    return [await run(sandbox, command) for command in COMMANDS], await sandbox.tree()


async def test_c07_c08_c09_c12_the_same_commands_have_the_same_observations_as_in_a_local_sandbox() -> None:
    """Raw bytes, flags, files, modes and times included."""
    async with LocalSandboxes(TIMEOUT_S).open(SPEC) as local:
        expected, tree = await play(local)
    async with quick().open(SPEC) as sandbox:
        seen, other = await play(sandbox)
        assert sandbox.log == COMMANDS
    for command, a, b in zip(COMMANDS, expected, seen, strict=True):
        assert a == b, command
    assert tree == other


async def test_a_failing_set_up_says_which_command_as_a_local_sandbox_does() -> None:
    messages: list[str] = []
    for sandboxes in (LocalSandboxes(), quick()):
        with pytest.raises(SandboxError) as raised:
            async with sandboxes.open(SandboxSpec(setup=("true", "echo said; cat missing"))):
                pass
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "`echo said; cat missing` failed (exit code 1)" in messages[0]


async def test_variables_are_those_of_the_image_and_the_traces_of_the_runner_are_small() -> None:
    async with quick().open(SandboxSpec()) as sandbox:
        assert await output(sandbox, 'echo "$QUOTE$LANG $TERM $PYTHONHASHSEED"; type -p python3 | wc -l') == (
            "it's\nC.UTF-8 dumb 0\n1"
        )
        assert "obsspec" not in await output(sandbox, "env; set; declare -F; alias; pwd; ls -A ~ /tmp")


async def test_a_home_that_can_not_be_made_is_an_error() -> None:
    with pytest.raises(SandboxError, match=r"cannot make the sandbox.*'/proc/home'"):
        async with BoxSandboxes(RunnerSettings(home="/proc/home")).open(SandboxSpec()):
            pass
    assert await eventually(lambda: boxes() == 0)


# Beside others -------------------------------------------------------------------------------------------------------


async def test_c01_what_others_run_in_the_sandbox_is_neither_killed_nor_counted() -> None:
    """Processes that the provider, or somebody else, started: before a command and while it runs."""
    sandboxes = quick()
    async with sandboxes.open(SandboxSpec()) as sandbox:
        box = sandboxes.machines[0].box
        await in_box(box, "sleep 3921 > /dev/null &")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_box, box, "sleep 0.3; setsid sleep 3921 > /dev/null &")
            timed_out = await run(sandbox, "sleep 3922")
        assert timed_out.timed_out
        silent = await run(sandbox, "true")
        history = [Exchange((shell(c),), (o,)) for c, o in (("sleep 3922", timed_out), ("true", silent))]
        assert isinstance(await sandbox.execute_if(shell("true"), guard_after(history)), Observation)
        assert len(host_processes("sleep 3921")) == 2
        assert await gone("sleep 3922")
    assert await gone("sleep 3921")


async def test_c04_jobs_of_commands_are_known_whoever_their_parent_is() -> None:
    async with quick().open(SandboxSpec()) as sandbox:
        seen = await run(sandbox, "(setsid sleep 3923 > /dev/null 2>&1 &) ; echo started")
        guard = guard_after([Exchange((shell("(setsid sleep 3923 > /dev/null 2>&1 &) ; echo started"),), (seen,))])
        assert await sandbox.execute_if(shell("true"), guard) == Refused(Refusal.STATE)
        assert (await run(sandbox, "(setsid sleep 3925 > /dev/null 2>&1 &) ; sleep 20")).timed_out
        assert await gone("sleep 3925")
        assert len(host_processes("sleep 3923")) == 1, "a job of an earlier command lives on"


# When it breaks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["start", "init"], ids=["daemon", "init"])
async def test_a_runner_that_is_killed_is_an_error_and_nothing_is_run_again(victim: str) -> None:
    sandboxes = quick()
    async with sandboxes.open(SandboxSpec()) as sandbox:
        box = sandboxes.machines[0].box
        await run(sandbox, "echo 1 >> ran")
        assert (await in_box(box, f"pgrep -f '{PROGRAM} {victim}'")).strip()
        with pytest.raises(SandboxError, match="ended"):
            await run(sandbox, f"echo 2 >> ran; sleep 0.1; pkill -9 -f '{PROGRAM} {victim}'; sleep 0.5")
        for _ in range(2):
            with pytest.raises(SandboxError, match="ended"):
                await run(sandbox, "echo 3 >> ran")
        with pytest.raises(SandboxError, match="ended"):
            await sandbox.tree()
        assert await in_box(box, "cat /home/user/ran") == "1\n2\n"
    assert await eventually(lambda: boxes() == 0)


async def test_a_command_that_ends_everything_it_can_ends_the_rollout_and_not_us() -> None:
    async with quick().open(SandboxSpec()) as sandbox:
        assert (await run(sandbox, "kill -TERM -1; echo alive")).text
        with pytest.raises(SandboxError):
            await run(sandbox, "kill -9 -1")


async def test_a_sandbox_that_the_provider_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "PAUSE_S", 0.01)
    sandboxes = quick()
    async with sandboxes.open(SandboxSpec()) as sandbox:
        await sandboxes.machines[0].box.close()
        with pytest.raises(SandboxError, match="no answer from the sandbox: the sandbox has gone"):
            await run(sandbox, "true")


async def test_an_image_without_python_is_a_mistake_of_the_user() -> None:
    with pytest.raises(ConfigError, match="no python3: use an image that has one"):
        async with BoxSandboxes(path="/nowhere").open(SandboxSpec()):
            pass
    assert await eventually(lambda: boxes() == 0)


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.25, 0.6])
async def test_d11_cancelled_while_it_opens_nothing_is_left(after_s: float) -> None:
    with anyio.move_on_after(after_s):
        async with quick().open(SandboxSpec(setup=("sleep 3924",))):
            pass
    assert await eventually(lambda: boxes() == 0)
    assert await gone("sleep 3924")


# Requests ------------------------------------------------------------------------------------------------------------


async def test_c06_an_answer_may_take_longer_than_an_execution_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "WAIT_S", 0.1)
    sandboxes = quick()
    async with sandboxes.open(SandboxSpec(setup=("sleep 0.5",))) as sandbox:
        before = sandboxes.wire.executed
        assert await output(sandbox, "sleep 0.7; echo x >> f; cat f") == "x"
        assert sandboxes.wire.executed > before + 2


async def test_a_command_may_be_longer_than_a_command_line() -> None:
    text = "x" * 100_000
    async with quick().open(SandboxSpec(files=(FileSpec("big", text.encode()),))) as sandbox:
        assert await output(sandbox, f"cat > f <<'EOF'\n{text}\nEOF\nwc -c < f; wc -c < big") == "100001\n100000"


async def test_the_runner_is_the_same_file_each_time_and_starts_once() -> None:
    first = runner()
    runner.cache_clear()
    assert runner() == first
    sandboxes = quick()
    async with sandboxes.open(SandboxSpec()) as sandbox:
        box = sandboxes.machines[0].box
        await run(sandbox, "x=1")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(box.execute, [*call_module.COMMAND, "start"], 10)
        assert await output(sandbox, "echo $x") == "1"
        assert len((await in_box(box, f"pgrep -f '{PROGRAM} start'")).split()) == 1
