"""What is asked of a provider: a sandbox into which files can be written and in which programs can be executed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from obsspec.sandbox import canonical
from obsspec.sandbox.profile import STANDARD, Profile
from obsspec.sandbox.spec import HOME
from obsspec.values import ConfigError


@dataclass(frozen=True, slots=True)
class Executed:
    """What became of one execution. `output` holds at least what was printed on stdout."""

    exit_code: int
    output: str


class LostError(Exception):
    """No answer came, for whatever reason: nobody knows whether the request arrived. It may be sent again."""


class Machine(Protocol):
    """One sandbox of a provider. Executions may be under way together. Whatever is raised means that it was lost.

    Cancelled only after the sandbox is deleted (`detached`).
    """

    async def write(self, path: str, content: bytes) -> None: ...

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> Executed: ...


class Provider(Protocol):
    """Where machines come from."""

    def machine(self, lifetime_s: float) -> AbstractAsyncContextManager[Machine]:
        """A new machine, deleted when the context is left. The provider itself ends it after `lifetime_s`.

        Cancelling waits until the machine exists, because only then can it be deleted. Raises `ConfigError` and
        `SandboxError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """How commands run in the sandbox of a provider; the same defaults as for local ones.

    timeout_s: for each command. max_characters: for each observation. home: where they start, made if it is not there.
    lifetime_s: after this the provider ends the sandbox, should nobody else have done it. Raises `ConfigError`.
    """

    timeout_s: float = 30.0
    max_characters: int = canonical.MAX_CHARACTERS
    home: str = HOME
    profile: Profile = field(default=STANDARD)
    lifetime_s: float = 3600.0

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ConfigError(f"the time limit of a command is {self.timeout_s:g} s: it must be more than 0")
        if self.max_characters < 1:
            raise ConfigError(f"an observation may have {self.max_characters} characters: it must be at least 1")
        if self.profile.clock:
            raise ConfigError("providers' images have no logical clock: use a determinism profile without `clock`")
