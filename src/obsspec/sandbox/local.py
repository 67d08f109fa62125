"""Sandboxes on this machine: bubblewrap namespaces around a small init."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from obsspec.sandbox import bubblewrap, canonical, identity
from obsspec.sandbox.channel import Channel, Frame
from obsspec.sandbox.inside import fields as wire
from obsspec.sandbox.inside.shell import Rules
from obsspec.sandbox.launch import launched
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.local_sandbox import LocalSandbox
from obsspec.sandbox.spec import HOME, SandboxSpec
from obsspec.values import ConfigError, SandboxError

OPEN_S = 120.0
ENVIRONMENT = {
    "PATH": "/opt/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "user",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "COLUMNS": "80",
    "PAGER": "cat",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
    # a clock that stands still where tools take theirs from the environment
    "TIME_STYLE": "+Jan  1 00:00",
    "GIT_AUTHOR_DATE": "2025-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z",
    "SOURCE_DATE_EPOCH": "1735689600",
}


class LocalSandboxes:
    """Opens sandboxes on this machine. `timeout_s` is for each command, `max_characters` for each observation.

    Raises `ConfigError`.
    """

    def __init__(
        self,
        timeout_s: float = 30.0,
        max_characters: int = canonical.MAX_CHARACTERS,
        limits: Limits | None = None,
    ) -> None:
        if not timeout_s > 0:
            raise ConfigError(f"the time limit of a command is {timeout_s:g} s: it must be more than 0")
        if max_characters < 1:
            raise ConfigError(f"an observation may have {max_characters} characters: it must be at least 1")
        self._timeout_s = timeout_s
        self._max_characters = max_characters
        self._limits = limits or Limits()

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncGenerator[LocalSandbox]:
        """A fresh sandbox, set up. Leaving the context, in any way, leaves no process of it alive.

        Raises `ConfigError` if this machine cannot make sandboxes, `SandboxError` if the set-up fails.
        """
        async with launched(self._limits) as process:
            channel = Channel(process)
            await self._set_up(channel, spec)
            yield LocalSandbox(channel, self._limits, self._timeout_s, self._max_characters)

    async def _set_up(self, channel: Channel, spec: SandboxSpec) -> None:
        try:
            with anyio.fail_after(OPEN_S):
                await channel.send(self._opening(spec))
                answer = await channel.receive()
        except SandboxError as error:
            if "bwrap: " in str(error):
                raise ConfigError(bubblewrap.refused(str(error))) from error
            raise
        except TimeoutError as error:
            raise SandboxError(f"the set-up took longer than {OPEN_S:g} s") from error
        if answer[0] != b"ok":
            raise SandboxError(answer[1].decode("utf-8", "replace"))

    def _opening(self, spec: SandboxSpec) -> Frame:
        limits = self._limits
        user = identity.UID if identity.two_users() else None
        rules = Rules(
            HOME,
            limits.memory_bytes,
            limits.processes,
            limits.file_bytes,
            limits.cpu_s,
            limits.open_files,
            user,
        )
        content = [(file.path, file.mode, file.content) for file in spec.files]
        return [
            b"open",
            *wire.rules(rules),
            wire.number(canonical.byte_limit(self._max_characters)),
            *wire.mapping(ENVIRONMENT),
            *wire.items(map(os.fsencode, spec.directories)),
            wire.number(len(content)),
            *(field for path, mode, data in content for field in (os.fsencode(path), wire.number(mode), data)),
            *wire.items(map(wire.text, spec.setup)),
        ]
