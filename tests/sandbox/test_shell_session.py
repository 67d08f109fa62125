"""The shell of a sandbox feels like one session: its state lives from command to command, and nothing else does."""

from __future__ import annotations

import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.values import SandboxError
from tests.sandbox.support import output, run

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]

KEPT = [
    ("cd /tmp", "pwd", "/tmp"),
    ("mkdir -p 'a b' && cd 'a b' && cd ..", "cd - >/dev/null; pwd", "/home/user/a b"),
    ("x=5", "echo $x", "5"),
    ("export x='a  \"b\" $c'", "bash -c 'echo \"$x\"'", 'a  "b" $c'),
    ("x=$'one\\ntwo'", 'echo "$x"', "one\ntwo"),
    ("a=(1 '2 3')", 'echo "${#a[@]} ${a[1]}"', "2 2 3"),
    ("declare -A m=([k]=v)", 'echo "${m[k]}"', "v"),
    ("declare -i n=1", "n=n+1; echo $n", "2"),
    ("unset HOME", "echo ${HOME-none}", "none"),
    ('f() { echo "f $1"; }', "f 1", "f 1"),
    ("f() { echo f; }; export -f f", "bash -c f", "f"),
    ("alias hi='echo hello'", "hi", "hello"),
    ("shopt -s extglob\nf() { case $1 in +(a)) echo yes;; esac; }", "f aaa", "yes"),
    ("set -o pipefail", "false | true || echo failed", "failed"),
    ("set -u", "echo $(set -o | grep nounset)", "nounset on"),
    ("umask 077", "touch secret; stat -c %a secret", "600"),
    ("(exit 3)", "echo $?", "3"),
    ("mkdir gone && cd gone && rmdir ../gone", "pwd", "/home/user"),
    ("shopt -s nocasematch; uid_=1; random=2", "echo $uid_ $random", "1 2"),
    ("readonly r=1; declare -n n=r", "echo $n", "1"),
    ("set -f", "echo *", "*"),
    ("set +B", "echo {1,2}", "{1,2}"),
    ("shopt -u patsub_replacement", "x=ab; echo ${x/b/[&]}", "a[&]"),
    ("shopt -s xpg_echo; x=1", 'echo "a\\tb$x"', "a\tb1"),
    ("exit 3", "echo alive $?", "alive 3"),
    ("IFS=:", "v=a:b; set -- $v; echo $#", "2"),
    ("PS1=x; __mine=1", "echo $__mine", "1"),
]


@pytest.mark.parametrize(("first", "second", "expected"), KEPT, ids=[first for first, _, _ in KEPT])
async def test_state_is_kept(first: str, second: str, expected: str) -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        assert not (await run(sandbox, first)).state_lost
        assert await output(sandbox, second) == expected


async def test_strict_mode_ends_the_command_and_not_the_sandbox() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        first = await run(sandbox, "set -euo pipefail; false")
        assert first.text == "(no output)\n(exit_code=1)"
        second = await run(sandbox, "false; echo not reached")
        assert second.text == "(no output)\n(exit_code=1)"
        third = await run(sandbox, "echo $missing")
        assert third.exit_code == 1
        assert "missing: unbound variable" in third.text


async def test_tracing_shows_the_command_and_not_our_own_lines() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "set -x")
        assert (await run(sandbox, "echo hi")).text == "hi\n+ echo hi\n(exit_code=0)"


async def test_a_killed_shell_loses_only_its_own_changes() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "kept=1")
        killed = await run(sandbox, "kept=2; kill -9 $$")
        assert killed.state_lost
        assert killed.text == "(no output)\n(shell state changes lost)\n(exit_code=137)"
        assert await output(sandbox, "echo $kept") == "1"


async def test_the_traces_of_the_machinery_are_small() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "x=1")
        assert "obsspec" not in await output(sandbox, "env; set; declare -F; alias; pwd; ls -A ~ /tmp")


async def test_fresh_sandboxes_have_the_same_environment() -> None:
    texts: list[str] = []
    for _ in range(2):
        async with LocalSandboxes().open(SandboxSpec()) as sandbox:
            texts.append(await output(sandbox, "env | sort; id; hostname; umask; ls -la ~ /opt; echo $$ $PPID"))
    assert texts[0] == texts[1]
    for line in ("LANG=C.UTF-8", "TERM=dumb", "COLUMNS=80", "PAGER=cat", "PYTHONHASHSEED=0", "HOME=/home/user"):
        assert line in texts[0].splitlines()
    assert "uid=1000(user) gid=1000(user)" in texts[0]


async def test_the_set_up_leaves_files_and_no_trace_in_shell_or_log() -> None:
    spec = SandboxSpec(
        directories=("d/e",),
        files=(FileSpec("run.sh", b"#!/bin/sh\necho ran\n", 0o755), FileSpec("deep/er/f", b"\x00\xff")),
        setup=("cd d && leak=1 && export leak && echo made > e/made", "./run.sh > out"),
    )
    async with LocalSandboxes().open(spec) as sandbox:
        assert sandbox.log == []
        assert await output(sandbox, "pwd; echo ${leak-unset}; ./run.sh; cat d/e/made out") == (
            "/home/user\nunset\nran\nmade\nran"
        )
        tree = await sandbox.tree()
        assert tree["deep/er/f"].content == b"\x00\xff"
        assert tree["run.sh"].mode == 0o755
        assert len(sandbox.log) == 1


async def test_a_failing_set_up_says_which_command() -> None:
    with pytest.raises(SandboxError, match=r"`cat missing` failed \(exit code 1\).*No such file"):
        async with LocalSandboxes().open(SandboxSpec(setup=("true", "cat missing"))):
            pass


async def test_the_tree_shows_everything_under_home_whatever_its_mode() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "mkdir -p d/sub; echo x > d/sub/f; chmod 000 d/sub/f d; ln -s /etc/passwd l; mkfifo p")
        await run(sandbox, r"echo y > $'bad\xff\nname'")
        tree = await sandbox.tree()
        assert {path: (entry.kind.value, entry.mode, entry.content) for path, entry in tree.items()} == {
            "d": ("directory", 0o000, b""),
            "d/sub": ("directory", 0o755, b""),
            "d/sub/f": ("file", 0o000, b"x\n"),
            "l": ("link", 0o777, b"/etc/passwd"),
            "p": ("other", 0o644, b""),
            "bad\udcff\nname": ("file", 0o644, b"y\n"),
        }
        assert (await run(sandbox, "cat d/sub/f")).exit_code == 1  # reading changed no permission


async def test_file_times_are_logical() -> None:
    """Two runs at different real times show the same times, and `ls -t` still knows the order."""
    commands = [
        "touch b",
        "sleep 0.05; touch a; tar cf t.tar b",
        "ls -t; stat -c '%n %y' a b . | sort; tar tvf t.tar; ls -l",
    ]
    texts: list[str] = []
    for _ in range(2):
        async with LocalSandboxes().open(SandboxSpec(files=(FileSpec("old", b""),))) as sandbox:
            for command in commands:
                observation = await run(sandbox, command)
            texts.append(observation.text)
    assert texts[0] == texts[1]
    assert "a 2025-01-01 00:02:00" in texts[0]
    assert "b 2025-01-01 00:01:00" in texts[0]


async def test_times_set_by_a_command_stay() -> None:
    async with LocalSandboxes().open(SandboxSpec()) as sandbox:
        await run(sandbox, "touch -d '2020-02-02 02:02:02 UTC' f")
        assert await output(sandbox, "stat -c %y f") == "2020-02-02 02:02:02.000000000 +0000"


async def test_git_commits_have_the_same_ids() -> None:
    ids: set[str] = set()
    for _ in range(2):
        async with LocalSandboxes().open(SandboxSpec(files=(FileSpec("f", b"x"),))) as sandbox:
            await output(sandbox, "git init -q . && git add f && git commit -qm first")
            ids.add(await output(sandbox, "git rev-parse HEAD"))
    assert len(ids) == 1
