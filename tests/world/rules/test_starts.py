"""What the rules know of a sandbox's start is what is there."""

from __future__ import annotations

import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.tasks.suite import Split, suite
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.values import Observation
from obsspec.world.rules.model import Rules
from obsspec.world.rules.starts import MAX_TEXT, StartingRules, start
from tests.sandbox.support import run
from tests.world.rules.test_rules import Session

pytestmark = [pytest.mark.anyio]
SPEC = SandboxSpec(
    directories=("empty", "a/b"),
    files=(
        FileSpec("plain.txt", b"one\ntwo\n"),
        FileSpec("open-end", b"x\ty"),
        FileSpec(".hidden", b"h\n", 0o600),
        FileSpec("a/deep/er", "ä 1\n".encode()),
        FileSpec("run", b"#!/bin/bash\necho ran $1\n", 0o755),
        FileSpec("binary", b"\xff\x00\n"),
        FileSpec("windows", b"a\r\nb\r\n"),
        FileSpec("colour", b"\x1b[31mred\x1b[0m\n"),
        FileSpec("locked", b"secret\n", 0o000),
        FileSpec("long", b"y" * (MAX_TEXT + 1)),
        FileSpec("nothing", b""),
    ),
)
KNOWN = """ls;ls a;ls empty;ls a/deep;cat plain.txt;cat .hidden;cat a/deep/er;wc -l plain.txt;head -n 1 plain.txt;
cat missing;grep -c o plain.txt;sha256sum plain.txt;cat nothing;wc -c open-end""".replace("\n", "").split(";")
OPEN = ["ls -A", "cat open-end", "cat binary", "wc -c binary", "cat windows", "cat colour", "cat locked", "cat long"]
CHANGES = ["rm plain.txt", "ls", "echo z >> a/new", "cat a/new", "ls a", "mv a c", "ls", "cat c/deep/er", "ls c"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def told(spec: SandboxSpec) -> Session:
    rules = Rules()
    async with StartingRules(rules, lambda _: spec).open(
        ScriptedEnvironment("image", lambda _: Observation("")), ""
    ) as one:
        assert one is rules
    session = Session(rules)
    session.tell("true", "(no output)\n(exit_code=0)")
    return session


@pytest.mark.sandbox
async def test_what_is_known_of_the_start_is_what_the_sandbox_shows() -> None:
    session = await told(SPEC)
    async with LocalSandboxes().open(SPEC) as sandbox:
        for command in (*KNOWN, *OPEN, *CHANGES):
            real = (await run(sandbox, command)).text
            assert session.known(command) in (real, real if command in KNOWN else None), command
            session.tell(command, real)


@pytest.mark.sandbox
async def test_the_tasks_of_the_suite_start_as_the_rules_say() -> None:
    asked = known = 0
    for task in suite(Split.VALIDATION, 24, seed=3):
        session = await told(task.spec)
        async with LocalSandboxes().open(task.spec) as sandbox:
            for command in ("ls", *(f"cat '{file.path}'" for file in task.spec.files)):
                real = (await run(sandbox, command)).text
                asked += 1
                said = session.known(command)
                known += said is not None
                assert said in (None, real), command
                session.tell(command, real)
    assert known > 0.8 * asked


async def test_of_a_sandbox_in_which_the_set_up_runs_commands_nothing_is_known() -> None:
    session = await told(SandboxSpec(files=SPEC.files, setup=("rm plain.txt",)))
    assert session.ask("ls") is None
    assert (await told(SPEC)).known("ls") is not None


def test_every_directory_on_the_way_is_there() -> None:
    nodes = start(SandboxSpec(files=(FileSpec("a/b/c", b""),)))
    assert sorted(nodes) == ["", "a", "a/b", "a/b/c"]


def test_paths_name_what_they_lead_to() -> None:
    plain = SandboxSpec(directories=("a", "a/b"), files=(FileSpec("c", b"1"), FileSpec("a/d", b"2")))
    odd = SandboxSpec(directories=("./a/", ".", "a//b"), files=(FileSpec("./c", b"1"), FileSpec("a/b/../d", b"2")))
    assert start(odd) == start(plain)


@pytest.mark.parametrize("path", ["/etc/motd", "../x", "a/../../x", "//x", ""])
def test_of_what_lies_elsewhere_nothing_is_known(path: str) -> None:
    assert start(SandboxSpec(files=(FileSpec(path, b"1"), FileSpec("a", b"2")))) == {}
    assert path == "" or start(SandboxSpec(directories=(path, "b"))) == {}


@pytest.mark.parametrize(
    ("link", "write"),
    [
        ("ln -s plain.txt link", "echo new > link"),
        ("ln plain.txt link", "echo new > link"),
        ("ln -s ../plain.txt a/link", "echo new > a/link"),
        ("ln -s ../plain.txt a", "echo new > a/plain.txt"),
        ("ln -s . here", "echo new > here/plain.txt"),
    ],
)
async def test_what_has_two_names_is_not_known(link: str, write: str) -> None:
    session = await told(SPEC)
    for command in (link, write):
        session.tell(command, "(no output)\n(exit_code=0)")
    assert session.ask("cat plain.txt") is None
    session.tell("cat plain.txt", "new\n(exit_code=0)")
    assert session.ask("cat plain.txt") is None


async def test_other_files_than_those_with_two_names_are_known() -> None:
    session = await told(SPEC)
    session.tell("ln -s plain.txt link", "(no output)\n(exit_code=0)")
    assert session.known("cat .hidden") == "h\n(exit_code=0)"
    assert session.ask("cat link") is None


async def test_images_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("obsspec.world.rules.model.MAX_IMAGES", 2)
    rules = Rules()
    for image in "abc":
        rules.start_from(image, start(SPEC))
    asked = [Session(rules, image) for image in "abc"]
    for session in asked:
        session.tell("true", "(no output)\n(exit_code=0)")
    assert [session.ask("ls") is None for session in asked] == [True, False, False]
