"""Sandboxes on a server: the same `open` as for local ones."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from obsspec.sandbox.remote_sandbox import RemoteSandbox
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError

CONNECT_S = 5.0


class RemoteSandboxes:
    """Opens sandboxes on the server at `url`. `answer_s` is our own deadline for one answer, latency included."""

    def __init__(self, url: str, answer_s: float = 180.0) -> None:
        self.url = url.rstrip("/")
        self._timeout = httpx2.Timeout(answer_s, connect=CONNECT_S)
        self._known = False  # a server has answered there

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncGenerator[RemoteSandbox]:
        """A fresh sandbox, set up. Leaving the context, in any way, leaves no process of it alive on the server.

        Raises `ConfigError` if there is no server or it cannot make sandboxes, `SandboxError` if the set-up fails.
        """
        if not self._known:
            await self.about()
        async with self._client() as client:
            sandbox = RemoteSandbox(client, uuid.uuid4().hex)
            try:
                await sandbox.open(spec)
                yield sandbox
            finally:
                await sandbox.close()

    async def about(self) -> dict[str, Any]:
        """What the server says of itself: latency, timeout_s, max_characters, sandboxes. Raises `ConfigError`."""
        fix = "start one with `python -m obsspec.sandbox.server`, or use local sandboxes"
        try:
            async with self._client() as client:
                response = await client.get("/health")
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ConfigError(f"no sandbox server at {self.url} ({error or type(error).__name__}): {fix}") from error
        if response.status_code != 200:
            raise ConfigError(f"what answers at {self.url} is not a sandbox server: {fix}")
        self._known = True
        return response.json()

    def _client(self) -> httpx2.AsyncClient:
        # one client for each sandbox: calls are sequential, so it holds one connection, and nothing is shared
        verify = self.url.startswith("https:")  # making a TLS context costs 25 ms
        return httpx2.AsyncClient(base_url=self.url, timeout=self._timeout, verify=verify, trust_env=verify)
