"""Sandboxes at Modal, through its own package (extra `modal`)."""

from __future__ import annotations

import math
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


class ModalSandboxes:
    """Opens sandboxes at Modal, in the app of that name, which is made if it is not there. Needs asyncio.

    `create`: as for `modal.Sandbox.create` (`image`, `cpu`, `memory`, ...). Credentials come from where the package
    looks for them: its configuration file, or MODAL_TOKEN_ID and MODAL_TOKEN_SECRET. Raises `ConfigError`.
    """

    def __init__(
        self, app: str = "obsspec", create: Mapping[str, Any] | None = None, settings: RunnerSettings | None = None
    ) -> None:
        self._sdk = load("modal", (1, 6), (2, 0))
        self._app = app
        self._create = dict(create or {})
        self._settings = settings or RunnerSettings()

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ProviderSandbox]:
        """A fresh sandbox, set up. It is deleted when the context is left, in whatever way.

        Raises `ConfigError` if Modal refuses the credentials, `SandboxError` if the set-up fails.
        """
        return opened(self, spec, self._settings)

    @asynccontextmanager
    async def machine(self, lifetime_s: float) -> AsyncGenerator[_Machine]:
        """As `Provider.machine`."""
        sdk = self._sdk

        async def create() -> _Machine:
            try:
                app = await sdk.App.lookup.aio(self._app, create_if_missing=True)
                options = {"app": app, "timeout": math.ceil(lifetime_s), **self._create}
                return _Machine(sdk, await sdk.Sandbox.create.aio(**options))
            except sdk.exception.AuthError as error:
                raise ConfigError(f"Modal refuses the credentials ({error}): run `modal token set`") from error

        async with lease(create, _Machine.delete) as machine:
            yield machine


@dataclass(frozen=True, slots=True)
class _Machine:
    sdk: Any
    sandbox: Any = field(repr=False)

    async def write(self, path: str, content: bytes) -> None:
        await self.sandbox.filesystem.write_bytes.aio(content, path)

    async def execute(self, arguments: Sequence[str], timeout_s: float) -> Executed:
        process = await self.sandbox.exec.aio(*arguments, timeout=math.ceil(timeout_s))
        output = await process.stdout.read.aio()
        return Executed(await process.wait.aio(), output)

    async def delete(self) -> None:
        try:
            await self.sandbox.terminate.aio()
        except self.sdk.exception.NotFoundError:
            return
