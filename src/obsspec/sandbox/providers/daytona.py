"""Sandboxes at Daytona, through its own package (extra `daytona`)."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from obsspec.sandbox.providers.lease import lease
from obsspec.sandbox.providers.machine import Executed, RunnerSettings
from obsspec.sandbox.providers.sandbox import ProviderSandbox, opened
from obsspec.sandbox.providers.sdk import load
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError

HOME = "/home/daytona"  # of the user of Daytona's own images
CLOSE_S = 5.0


class DaytonaSandboxes:
    """Opens sandboxes at Daytona. Needs asyncio.

    `create`: what they are made of, as for `daytona.CreateSandboxFromImageParams` if it has an `image`, otherwise as
    for `CreateSandboxFromSnapshotParams`. `config`: as for `daytona.DaytonaConfig`; what is not there comes from the
    environment variables that the package reads, the API key among them. Raises `ConfigError`.
    """

    def __init__(
        self,
        create: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        settings: RunnerSettings | None = None,
    ) -> None:
        self._sdk = load("daytona", (0, 200), (1, 0))
        self._create = dict(create or {})
        self._config = dict(config or {})
        self._settings = settings or RunnerSettings(home=HOME)
        self._client: Any = None
        self._users = 0

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ProviderSandbox]:
        """A fresh sandbox, set up. It is deleted when the context is left, in whatever way.

        Raises `ConfigError` if Daytona refuses the credentials, `SandboxError` if the set-up fails.
        """
        return opened(self, spec, self._settings)

    @asynccontextmanager
    async def machine(self, lifetime_s: float) -> AsyncGenerator[_Machine]:
        """As `Provider.machine`."""
        sdk = self._sdk
        minutes = math.ceil(lifetime_s / 60)
        options = {"ephemeral": True, "auto_stop_interval": minutes, "ttl_minutes": minutes, **self._create}
        kind = sdk.CreateSandboxFromImageParams if "image" in options else sdk.CreateSandboxFromSnapshotParams

        async def create() -> _Machine:
            try:
                return _Machine(sdk, await client.create(kind(**options), timeout=0))
            except sdk.DaytonaAuthenticationError as error:
                raise ConfigError(f"Daytona refuses the credentials ({error}): set DAYTONA_API_KEY") from error

        async with self._connected() as client, lease(create, _Machine.delete) as machine:
            yield machine

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Any]:
        """One client for all sandboxes that are open at the same time: it holds connections of its own."""
        if self._client is None:
            try:
                self._client = self._sdk.AsyncDaytona(self._sdk.DaytonaConfig(**self._config))
            except self._sdk.DaytonaError as error:
                raise ConfigError(f"Daytona can not be used ({error}): set DAYTONA_API_KEY") from error
        client = self._client
        self._users += 1
        try:
            yield client
        finally:
            self._users -= 1
            if self._users == 0:
                self._client = None
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await client.close()


@dataclass(frozen=True, slots=True)
class _Machine:
    sdk: Any
    sandbox: Any = field(repr=False)

    async def write(self, path: str, content: bytes) -> None:
        await self.sandbox.fs.upload_file(content, path)

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> Executed:
        done = await self.sandbox.process.exec(shlex.join(arguments), timeout=math.ceil(timeout_s))
        return Executed(int(done.exit_code), done.result)

    async def delete(self) -> None:
        try:
            await self.sandbox.delete()
        except self.sdk.DaytonaNotFoundError:
            return
