"""A fork prints what a fresh sandbox prints after the same commands, and nothing it does is seen elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest

from obsspec.sandbox import bubblewrap
from obsspec.sandbox.fork import Fork, ForkError, ForkRefusal
from obsspec.sandbox.forks import Forks, open_forks
from obsspec.sandbox.limits import MIB, Limits
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.values import Observation, SandboxError
from tests.sandbox.support import gone, host_processes, run, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]

SPEC = SandboxSpec(
    directories=("data/empty",),
    files=(FileSpec("data/a.csv", b"x,1\ny,2\n"), FileSpec("run.sh", b"#!/bin/sh\necho ran $#\n", 0o755)),
    setup=("seq 1000 > numbers", "ln numbers hard; ln -s data/a.csv link; mkfifo pipe; touch -d 2001-02-03 old"),
)
COMMANDS = (
    "pwd; id; hostname; env | sort; umask; echo $$ $PPID $-",
    "ls -la . data /tmp; ls -ld ~; stat -c '%n %s %h %a %U %y' * | sort; find . -type f; ls -U",
    "grep Cap /proc/self/status; cat /proc/self/uid_map; ulimit -a; cat /proc/1/cmdline | tr '\\0' ' '",
    "cd data && x=5 && export y='a b' && f() { echo f $1; } && alias hi='echo hello' && echo new > b.csv",
    "hi; f $x; echo $y; ls -la; echo $OLDPWD; echo $$",
    "mkdir -p deep/er/est && mv a.csv deep && chmod 700 deep/er && rm b.csv; ls -laR",
    "cd; ./run.sh 1 2 3; python3 -c 'print({1, 2}, hash(\"a\"))'",
    "git init -q r && cd r && git commit -q --allow-empty -m m",
    "git log; ls -la; df --output=size,target ~ /tmp; du -sk ~; exec 3<>/dev/tcp/127.0.0.1/1",
    "sqlite3 db 'create table t(a); insert into t values(1); select * from t'; false | true; echo ${PIPESTATUS[@]}",
    "kill -9 $$",
    "cat ~/old ~/missing; ls -l --time-style=full-iso ~/old ~/numbers; tar cf - -C ~ data | sha256sum",
    "nonsense; exit 3",
    "echo $?; truncate -s 3M sparse; echo end >> sparse; printf 'a\\r\\033[31mb\\xff'; wc -c < sparse",
    "sha256sum sparse; du -k sparse; ls -lai --time-style=+ ~ | awk '{print $2, $3}'",
    "touch /etc/x /usr/y; set -u; echo $zz",
)


async def seen(fork: Fork, command: str) -> Observation:
    return fork.observe(await fork.execute(shell(command)))


async def text(fork: Fork, command: str) -> str:
    return (await seen(fork, command)).text.removesuffix("\n(exit_code=0)")


async def in_a_fresh_sandbox(commands: Sequence[str]) -> list[Observation]:
    async with LocalSandboxes().open(SPEC) as sandbox:
        return [await run(sandbox, command) for command in commands]


async def chain(forks: Forks, length: int) -> Fork:
    fork = forks.root
    for number in range(length):
        younger = await fork.fork()
        await text(younger, f"echo {number} >> log; n={number}")
        await fork.drop()
        fork = younger
    return fork


async def test_a_fork_at_every_command_prints_what_a_fresh_sandbox_prints() -> None:
    expected = await in_a_fresh_sandbox(COMMANDS)
    async with open_forks(SPEC) as forks:
        fork = forks.root
        for command, observation in zip(COMMANDS, expected, strict=True):
            aside = await fork.fork()
            assert await seen(aside, command) == observation, command
            younger = await fork.fork()  # after a sibling has run: nothing of it shows
            assert await seen(younger, command) == observation, command
            await aside.drop()
            await fork.drop()
            fork = younger


async def test_commands_one_after_the_other_print_what_a_fresh_sandbox_prints() -> None:
    expected = await in_a_fresh_sandbox(COMMANDS)
    async with open_forks(SPEC) as forks:
        assert [await seen(forks.root, command) for command in COMMANDS] == expected


async def test_forks_are_independent_of_each_other() -> None:
    async with open_forks(SPEC) as forks:
        await text(forks.root, "echo common > f; v=common")
        one, two = await forks.root.fork(), await forks.root.fork()
        await text(one, "echo one > f; echo one > /tmp/f; echo one > /dev/shm/f; v=one; cd /tmp; rm -r ~/data")
        grandchild = await one.fork()
        await text(one, "echo later > f")
        assert await text(two, "cat f; echo $v; ls -A /tmp /dev/shm | wc -w; pwd; ls data") == (
            "common\ncommon\n2\n/home/user\na.csv\nempty"
        )
        assert await text(grandchild, "cat f ~/f /dev/shm/f; echo $v; pwd") == "one\none\none\none\n/tmp"
        await forks.root.drop()
        await one.drop()
        assert await text(grandchild, "cat f") == "one"
        assert len(forks) == 2


async def test_forks_run_at_the_same_time() -> None:
    async with open_forks(SPEC) as forks:
        copies = [await forks.root.fork() for _ in range(4)]

        async def one(number: int, fork: Fork) -> None:
            await text(fork, f"sleep 0.1; echo {number} > mine")
            assert await text(fork, "cat mine; ps ax | wc -l") == f"{number}\n5"

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for number, fork in enumerate(copies):
                    tasks.start_soon(one, number, fork)


async def test_a_chain_of_fifty_forks_keeps_everything() -> None:
    async with open_forks(SPEC) as forks:
        fork = await chain(forks, 50)
        assert await text(fork, "wc -l < log; echo $n; stat -c %y log") == "50\n49\n2025-01-01 00:50:00.000000000 +0000"
        assert len(forks) == 1


async def test_background_jobs_refuse_a_fork_until_they_end() -> None:
    async with open_forks(SPEC) as forks:
        result = await forks.root.execute(shell("sleep 3811 & echo $! > pid"))
        assert result.jobs
        with pytest.raises(ForkError) as refused:
            await forks.root.fork()
        assert refused.value.refusal is ForkRefusal.JOBS
        assert not (await forks.root.execute(shell("kill $(cat pid); sleep 0.01"))).jobs
        assert await text(await forks.root.fork(), "echo fine") == "fine"


async def test_cancelling_a_command_kills_it_and_marks_the_fork() -> None:
    async with open_forks(SPEC) as forks:
        fork = await forks.root.fork()
        with anyio.move_on_after(0.2):
            await fork.execute(shell("setsid sleep 3821 & sleep 3822"))
        assert fork.drifted
        assert await gone("sleep 382")
        with pytest.raises(ForkError, match="cancelled midway"):
            await fork.fork()
        assert await text(await forks.root.fork(), "echo fine") == "fine"


async def test_cancelling_a_fork_at_any_moment_leaves_no_copy() -> None:
    async with open_forks(SPEC) as forks:
        for number in range(20):
            with anyio.move_on_after(0.0006 * number):
                await (await forks.root.fork()).drop()
        assert await text(await forks.root.fork(), "echo fine") == "fine"
        assert len(forks) == 2


async def test_dropping_a_fork_ends_what_runs_in_it() -> None:
    async with open_forks(SPEC) as forks:
        fork = await forks.root.fork()
        await fork.execute(shell("setsid sleep 3831 & sleep 3831 &"))
        assert len(host_processes("sleep 3831")) == 2
        await fork.drop()
        assert await gone("sleep 3831")
        with pytest.raises(ForkError, match="dropped"):
            await fork.execute(shell("echo"))
        await fork.drop()


async def test_nothing_outlives_the_forks_whatever_ends_them() -> None:
    with suppress(ZeroDivisionError):
        async with open_forks(SPEC) as forks:
            for fork in (forks.root, await forks.root.fork()):
                await fork.execute(shell("setsid sleep 3841 & sleep 3841 &"))
            raise ZeroDivisionError
    assert await gone("sleep 3841")
    with pytest.raises(SandboxError):
        await forks.root.execute(shell("echo nobody"))


async def test_too_many_forks_are_refused() -> None:
    async with open_forks(SPEC, max_forks=2) as forks:
        other = await forks.root.fork()
        with pytest.raises(ForkError, match="drop some"):
            await forks.root.fork()
        await other.drop()
        await forks.root.fork()


async def test_each_fork_has_the_disk_of_a_sandbox() -> None:
    async with open_forks(SPEC, limits=Limits(disk_bytes=4 * MIB)) as forks:
        await text(forks.root, "head -c 3M /dev/zero > big")
        for _ in range(2):
            fork = await forks.root.fork()
            assert "No space left" in await text(fork, "head -c 2M /dev/zero > more")
            assert await text(fork, "rm big more; head -c 3M /dev/zero > more; echo fits") == "fits"


async def test_what_takes_long_at_the_first_opening_does_not_hold_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(limits: Limits, extra: Sequence[str] = (), control: int | None = None) -> list[str]:
        time.sleep(0.3)
        return arguments(limits, extra, control)

    arguments = bubblewrap.arguments
    monkeypatch.setattr(bubblewrap, "arguments", slow)
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = anyio.current_time()
            await anyio.sleep(0.01)
            gaps.append(anyio.current_time() - before)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        async with open_forks(SPEC):
            tasks.cancel_scope.cancel()
    assert max(gaps) < 0.2


async def test_a_failing_set_up_says_which_command() -> None:
    with pytest.raises(SandboxError, match=r"`cat missing` failed \(exit code 1\)"):
        async with open_forks(SandboxSpec(setup=("cat missing",))):
            pass
