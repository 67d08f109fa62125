"""New weights for the engines that serve: an adapter file becomes a version that `LivePolicy.publish` opens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import anyio
from anyio.to_thread import run_sync

from obsspec.models.adapter import read_adapter
from obsspec.models.merge import ServedModel
from obsspec.models.remerge import Merger
from obsspec.policy.llama import LlamaPolicy, open_llama_policy
from obsspec.policy.llama_server import EngineSettings
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.protocols import Policy
from obsspec.train.vllm_adapters import VllmAdapters
from obsspec.values import ConfigError, EngineError


class Serving(Protocol):
    """How an adapter is served."""

    def open(self, adapter: Path, version: str) -> AbstractAsyncContextManager[Policy]:
        """The policy of this adapter; `version` is a new name each time. Closed, nothing of it is left."""
        ...


class EmbeddedServing:
    """Each version has an embedded engine of its own, on the base model merged with the adapter.

    Two versions are alive until the older one's calls have ended; each has the threads of the settings. The merged file
    is gone as soon as the engine has it in memory, so that versions leave nothing behind on disk.
    """

    def __init__(self, settings: EngineSettings, folder: Path, name: str, merger: Merger | None = None) -> None:
        """`folder`: for the engine's log and the files in passing. `name`: of the log. Raises `ConfigError`."""
        folder.mkdir(parents=True, exist_ok=True)
        self._settings, self._folder, self._name = settings, folder, name
        self._merger = merger or Merger()

    @asynccontextmanager
    async def open(self, adapter: Path, version: str) -> AsyncGenerator[LlamaPolicy, None]:
        path = self._folder / f"{self._name}-{version}.gguf"
        async with AsyncExitStack() as stack:
            try:
                await run_sync(self._write, adapter, path)
                served = ServedModel(path, version)
                log = self._folder / f"{self._name}.log"
                policy = await stack.enter_async_context(open_llama_policy(served, self._settings, log))
            finally:
                path.unlink(missing_ok=True)
            yield policy

    def _write(self, adapter: Path, path: Path) -> None:
        try:
            self._merger.write(read_adapter(adapter), path)
        except OSError as error:
            raise ConfigError(f"cannot write {path} ({error.strerror}): free some space there") from None


class VllmServing:
    """Each version is a LoRA adapter of its own name at a vLLM server, which reads it from a folder that both see.

    The server must run with `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. A name is never used again: the
    server would answer it from the prefix cache of the old adapter.
    """

    def __init__(self, url: str, folder: Path, *, api_key: str = "", timeout_s: float = 120.0) -> None:
        """`folder`: where adapters are put for the server to read; each stays as long as its version is open."""
        self._url, self._api_key, self._timeout_s = url, api_key, timeout_s
        self._adapters = VllmAdapters(url, folder, api_key=api_key, timeout_s=timeout_s)

    @asynccontextmanager
    async def open(self, adapter: Path, version: str) -> AsyncGenerator[TokenEndpointPolicy, None]:
        """Raises `ConfigError` when the server refuses the adapter, `EngineError` when it does not answer."""
        try:
            await self._adapters.load(adapter, version)
        except ConfigError:
            raise  # the name may be somebody else's
        except BaseException:  # it may be loaded all the same
            await self._unload(version)
            raise
        try:
            key, timeout_s = self._api_key, self._timeout_s
            async with TokenEndpointPolicy(self._url, version, api_key=key, timeout_s=timeout_s) as endpoint:
                yield endpoint
        finally:
            await self._unload(version)

    async def _unload(self, version: str) -> None:
        with anyio.move_on_after(self._timeout_s, shield=True), suppress(EngineError, ConfigError):
            await self._adapters.unload(version)
