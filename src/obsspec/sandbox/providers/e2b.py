"""Sandboxes at E2B, through its own package (extra `e2b`)."""

from __future__ import annotations

import math
import shlex
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from obsspec.sandbox.providers.lease import lease
from obsspec.sandbox.providers.machine import Executed, RunnerSettings
from obsspec.sandbox.providers.sandbox import ProviderSandbox, opened
from obsspec.sandbox.providers.sdk import load
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError


class E2BSandboxes:
    """Opens sandboxes at E2B. Needs asyncio.

    `create`: as for `e2b.AsyncSandbox.create` (`template`, `api_key`, `domain`, ...); what is not there comes from the
    environment variables that the package reads, the API key among them. Raises `ConfigError`.
    """

    def __init__(self, create: Mapping[str, Any] | None = None, settings: RunnerSettings | None = None) -> None:
        self._sdk = load("e2b", (2, 60), (3, 0))
        self._create = dict(create or {})
        self._settings = settings or RunnerSettings()

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ProviderSandbox]:
        """A fresh sandbox, set up. It is deleted when the context is left, in whatever way.

        Raises `ConfigError` if E2B refuses the credentials, `SandboxError` if the set-up fails.
        """
        return opened(self, spec, self._settings)

    @asynccontextmanager
    async def machine(self, lifetime_s: float) -> AsyncGenerator[_Machine]:
        """As `Provider.machine`."""
        sdk = self._sdk
        key = uuid.uuid4().hex  # so that a request that the package repeats makes one sandbox
        options = {"timeout": math.ceil(lifetime_s), "idempotency_key": key, **self._create}

        async def create() -> _Machine:
            try:
                return _Machine(sdk, await sdk.AsyncSandbox.create(**options))
            except sdk.AuthenticationException as error:
                raise ConfigError(f"E2B refuses the credentials ({error}): set E2B_API_KEY") from error

        async with lease(create, _Machine.delete) as machine:
            yield machine


@dataclass(frozen=True, slots=True)
class _Machine:
    sdk: Any
    sandbox: Any = field(repr=False)

    async def write(self, path: str, content: bytes) -> None:
        await self.sandbox.files.write(path, content)

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> Executed:
        try:
            done = await self.sandbox.commands.run(shlex.join(arguments), timeout=timeout_s)
        except self.sdk.CommandExitException as error:
            return Executed(error.exit_code, error.stdout)
        return Executed(done.exit_code, done.stdout)

    async def delete(self) -> None:
        await self.sandbox.kill()  # says False of one that has gone already
