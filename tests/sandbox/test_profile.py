"""The determinism profile takes away what it names, and nothing else."""

from __future__ import annotations

import pytest

from obsspec.sandbox.forks import open_forks
from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.profile import PROFILES, Profile, parse_profile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError
from tests.sandbox.support import output, shell

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
CLOCK = "date; date -u +%s.%N; sh -c date"
RANDOM = "echo $RANDOM $RANDOM; echo $RANDOM"


async def outputs(profile: Profile, *commands: str) -> list[str]:
    async with LocalSandboxes(profile=profile).open(SandboxSpec()) as sandbox:
        return [await output(sandbox, command) for command in commands]


async def test_strict_fixes_the_clock_of_date_and_the_random_numbers_of_the_shell() -> None:
    commands = (CLOCK, RANDOM, RANDOM, "touch f; date +%s", "stat -c %Y f")
    first, second = [await outputs(PROFILES["strict"], *commands) for _ in range(2)]
    assert first == second
    assert first[0].splitlines()[1] == "1735689660.000000000"
    assert first[1] != first[2]  # another command, other numbers
    assert first[3] == first[4] == "1735689840"


async def test_strict_leaves_other_dates_alone() -> None:
    (text,) = await outputs(PROFILES["strict"], "touch -d @86400 f; date -r f +%s; date -d @5 +%s; date --date=@6 +%s")
    assert text == "86400\n5\n6"


async def test_standard_shows_the_real_clock() -> None:
    (first,) = await outputs(PROFILES["standard"], "date +%s; echo $PATH")
    assert not first.startswith("17356896")
    assert "logical" not in first


async def test_off_shows_real_times_and_sets_no_variables() -> None:
    (text,) = await outputs(PROFILES["off"], "touch f; stat -c %Y f; env | grep -c -e PYTHON -e GIT_ -e STYLE || :")
    time, variables = text.split()
    assert int(time) > 1735689600 + 86400
    assert variables == "0"


async def test_forks_have_the_same_profile() -> None:
    expected = await outputs(PROFILES["strict"], CLOCK, RANDOM, "env")
    async with open_forks(SandboxSpec(), profile=PROFILES["strict"]) as forks:
        fork, said = forks.root, list[str]()
        for command in (CLOCK, RANDOM, "env"):
            fork = await fork.fork()
            said.append((await fork.execute(shell(command))).stdout.decode().rstrip("\n"))
    assert said == expected


def test_a_profile_has_a_name() -> None:
    assert parse_profile("standard") == Profile()
    with pytest.raises(ConfigError, match="no determinism profile 'exact': choose off, standard, strict"):
        parse_profile("exact")
