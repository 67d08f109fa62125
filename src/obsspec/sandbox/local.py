"""Sandboxes on this machine: bubblewrap namespaces around a small init."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from obsspec.sandbox import canonical
from obsspec.sandbox.channel import Channel, ProcessLink
from obsspec.sandbox.launch import launched
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.local_sandbox import LocalSandbox
from obsspec.sandbox.opening import beginning, opening, set_up
from obsspec.sandbox.profile import STANDARD, Profile
from obsspec.sandbox.spec import HOME, SandboxSpec
from obsspec.values import ConfigError

ENVIRONMENT = {
    "PATH": "/opt/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "user",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "COLUMNS": "80",
    "PAGER": "cat",
    "TZ": "UTC",
}


class LocalSandboxes:
    """Opens sandboxes on this machine. `timeout_s` is for each command, `max_characters` for each observation,
    `profile` for what is to be the same each time.

    Raises `ConfigError`.
    """

    def __init__(
        self,
        timeout_s: float = 30.0,
        max_characters: int = canonical.MAX_CHARACTERS,
        limits: Limits | None = None,
        profile: Profile = STANDARD,
    ) -> None:
        if not timeout_s > 0:
            raise ConfigError(f"the time limit of a command is {timeout_s:g} s: it must be more than 0")
        if max_characters < 1:
            raise ConfigError(f"an observation may have {max_characters} characters: it must be at least 1")
        self._timeout_s = timeout_s
        self._max_characters = max_characters
        self._limits = limits or Limits()
        self._profile = profile

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncGenerator[LocalSandbox]:
        """A fresh sandbox, set up. Leaving the context, in any way, leaves no process of it alive.

        Raises `ConfigError` if this machine cannot make sandboxes, `SandboxError` if the set-up fails.
        """
        async with launched(self._limits) as process:
            channel = Channel(ProcessLink(process))
            variables = self._profile.environment(ENVIRONMENT)
            begin = beginning(HOME, self._limits, self._max_characters, variables, self._profile, root=False)
            await set_up(channel, opening(spec, begin))
            yield LocalSandbox(channel, self._limits, self._timeout_s, self._max_characters)
