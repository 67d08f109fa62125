"""How much of a sandbox is the same each time, beside what always is: the determinism profile.

Always the same: namespaces (process numbers start at 1, a fixed host name, no network), user, language, terminal and
time zone. A profile adds to that. It belongs to the environment: both pipelines get the same one, and the policy sees
what it does. What reads a clock or draws random numbers by itself (Python, compilers, /dev/urandom, uuidgen) stays as
it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obsspec.values import ConfigError

LOGICAL_BIN = "/opt/logical/bin"  # tools that know the logical clock
_FIXED = {
    "PYTHONHASHSEED": "0",
    # a clock that stands still where tools take theirs from the environment
    "TIME_STYLE": "+Jan  1 00:00",
    "GIT_AUTHOR_DATE": "2025-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z",
    "SOURCE_DATE_EPOCH": "1735689600",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Which differences between two runs of the same commands are taken away.

    variables: hash seed, and times of `ls`, git and builds from environment variables.
    file_times: what command number n changed gets the time 2025-01-01 00:00 UTC + n minutes.
    clock: `date` shows the time of the command, as above. With -d, -f, -r or -s it is the ordinary `date`.
    random: $RANDOM of the shell starts from the number of the command.
    """

    variables: bool = True
    file_times: bool = True
    clock: bool = False
    random: bool = False

    def environment(self, usual: Mapping[str, str]) -> dict[str, str]:
        """The variables of a shell whose variables are `usual` otherwise."""
        variables = {**usual, **(_FIXED if self.variables else {})}
        if self.clock:
            variables["PATH"] = f"{LOGICAL_BIN}:{variables['PATH']}"
        return variables

    def letters(self) -> str:
        """For the init of a sandbox."""
        return "t" * self.file_times + "c" * self.clock + "r" * self.random


PROFILES: Mapping[str, Profile] = {
    "off": Profile(variables=False, file_times=False),
    "standard": Profile(),
    "strict": Profile(clock=True, random=True),
}
STANDARD = PROFILES["standard"]


def parse_profile(name: str) -> Profile:
    """A profile by its name. Raises `ConfigError`."""
    try:
        return PROFILES[name]
    except KeyError:
        raise ConfigError(f"there is no determinism profile {name!r}: choose {', '.join(PROFILES)}") from None
