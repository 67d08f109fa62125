"""LoRA adapters at a vLLM server: which there are, loading one under a name, unloading it.

The server must run with `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and must see the folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx2
from anyio.to_thread import run_sync

from obsspec.models.adapter import read_adapter
from obsspec.models.peft_adapter import write_peft
from obsspec.policy.transport import engine_errors, expected_shape, http_client
from obsspec.values import ConfigError

_NEEDED = "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"


class VllmAdapters:
    """`folder`: where adapters are put for the server to read; each stays there as long as it is loaded.

    Errors of all methods: `ConfigError` when the server refuses, `EngineError` when it does not answer.
    """

    def __init__(self, url: str, folder: Path, *, api_key: str = "", timeout_s: float = 120.0) -> None:
        """`url` with or without `/v1`."""
        self._root, self._folder = url.rstrip("/").removesuffix("/v1"), folder.absolute()
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._options: dict[str, Any] = {"timeout_s": timeout_s, "connections": None, "headers": headers}

    async def load(self, adapter: Path, name: str) -> None:
        """Afterwards the server answers requests for the model `name`. Cancelled or refused: nothing is left on disk.

        A name must never be given to another adapter: the server would answer from the prefix cache of the first.
        """
        place = self._folder / name
        try:
            await run_sync(_write, adapter, place)
            await self._ask("load", {"lora_name": name, "lora_path": str(place)})
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise

    async def unload(self, name: str) -> None:
        """Requests that run on it end as they would have; further ones are refused."""
        try:
            await self._ask("unload", {"lora_name": name})
        finally:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    async def names(self) -> list[str]:
        """All models that the server has now, adapters among them."""
        answer = await self._send("GET", "/v1/models", None)
        if answer.status_code != 200:
            raise ConfigError(f"{self._root} answers no list of models: give the URL of a vLLM server")
        with expected_shape(f"engine {self._root}"):
            return [str(entry["id"]) for entry in answer.json()["data"]]

    async def _ask(self, what: str, body: dict[str, str]) -> None:
        answer = await self._send("POST", f"/v1/{what}_lora_adapter", body)
        if answer.status_code == 404:
            raise ConfigError(f"{self._root} cannot load adapters: start vLLM with {_NEEDED}")
        if answer.status_code != 200:
            name, said = body["lora_name"], answer.text[:200]
            raise ConfigError(f"{self._root} did not {what} {name} ({answer.status_code}: {said})")

    async def _send(self, method: str, path: str, body: dict[str, str] | None) -> httpx2.Response:
        async with http_client(self._root, **self._options) as client:
            with engine_errors(f"engine {self._root}"):
                return await client.request(method, path, json=body)


def _write(adapter: Path, place: Path) -> None:
    try:
        write_peft(read_adapter(adapter), place)
    except OSError as error:
        raise ConfigError(f"cannot write {place} ({error.strerror}): free some space there") from None
