"""The probe finds what differs between two runs of the same commands, and says why."""

from __future__ import annotations

import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.profile import PROFILES
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.values import ToolCall
from obsspec.worldeval.causes import Cause, cause_of
from obsspec.worldeval.probe import probe

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


PAIRS = [
    ("date", "Mon Nov 30 03:20:13 UTC 2026", "Mon Nov 30 03:20:15 UTC 2026", Cause.TIME),
    ("python3 f.py", "started 1764472813", "started 1764472815", Cause.TIME),
    ("cat log", "2026-11-30 03:20 ok", "2026-12-01 04:20 ok", Cause.TIME),
    ("time make", "real\t0m0.003s", "real\t0m0.004s", Cause.ELAPSED),
    ("pytest", "2 passed in 0.02s", "2 passed in 0.13s", Cause.ELAPSED),
    ("python3 b.py", "took 0.0123 seconds", "took 0.0456 seconds", Cause.ELAPSED),
    ("sleep 1 &", "[1] 1234", "[1] 1270", Cause.PROCESS),
    ("echo $$", "12", "15", Cause.PROCESS),
    ("echo $RANDOM", "12345", "321", Cause.RANDOM),
    ("mktemp", "/tmp/tmp.aBcDeFgH12", "/tmp/tmp.zYxWvUtS98", Cause.RANDOM),
    ("python3 id.py", "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7", Cause.RANDOM),
    ("python3 o.py", "<object object at 0x7f12ab34c0d0>", "<object object at 0x7f99ab34c0d0>", Cause.ADDRESS),
    ("python3 s.py", "{'b', 'a'}", "{'a', 'b'}", Cause.ORDER),
    ("find .", "./a\n./b", "./b\n./a", Cause.ORDER),
    ("curl example.org", "<html>", "could not resolve", Cause.NETWORK),
    ("df", "/dev/vda 100 20", "/dev/vda 100 21", Cause.MACHINE),
    ("./run", "yes", "no", Cause.OTHER),
]


@pytest.mark.parametrize(
    ("command", "first", "second", "cause"), PAIRS, ids=[pair[0] + "-" + pair[3] for pair in PAIRS]
)
def test_causes_are_read_off(command: str, first: str, second: str, cause: Cause) -> None:
    assert cause_of(command, first + "\n(exit_code=0)", second + "\n(exit_code=0)") is cause


def calls(*commands: str) -> list[ToolCall]:
    return [ToolCall("bash", {"command": command}) for command in commands]


@pytest.mark.sandbox
async def test_b10_the_probe_names_what_is_volatile() -> None:
    spec = SandboxSpec(files=(FileSpec("a", b"1\n"),))
    commands = calls("ls -la", "date > now", "cat now", "echo $RANDOM", "echo $$", "mktemp -u", "cat a; exit 3")
    report = await probe(spec, commands, LocalSandboxes())
    assert [probed.cause for probed in report.commands] == [
        None,
        None,
        Cause.TIME,
        Cause.RANDOM,
        None,  # process numbers start at 1 in each sandbox
        Cause.RANDOM,
        None,
    ]
    assert report.ceiling == 4 / 7
    assert report.causes == {Cause.RANDOM: 2, Cause.TIME: 1}


@pytest.mark.sandbox
async def test_the_strict_profile_raises_the_ceiling() -> None:
    report = await probe(SandboxSpec(), calls("date", "echo $RANDOM"), LocalSandboxes(profile=PROFILES["strict"]))
    assert report.ceiling == 1.0
    assert (await probe(SandboxSpec(), [], LocalSandboxes())).ceiling == 1.0
