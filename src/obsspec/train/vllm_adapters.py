"""LoRA adapters at a vLLM server: which there are, loading one under a name, unloading it.

The server must run with `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and must see the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2
from anyio.to_thread import run_sync

from obsspec.models.adapter import read_adapter
from obsspec.models.peft_adapter import write_peft
from obsspec.policy.transport import check_status, engine_errors, expected_shape, http_client
from obsspec.values import ConfigError

_NEEDED = "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
_AWAY = frozenset({408, 425, 429, 502, 503, 504})  # 500 is vLLM's answer to an adapter that does not fit


class NoModelListError(ConfigError):
    """Something answers at the URL, but lists no models."""


class VllmAdapters:
    """`folder`: where adapters are put for the server to read; each stays there as long as it is loaded.

    Errors of all methods: `ConfigError` when the server refuses, `EngineError` when it does not answer or is away.
    """

    def __init__(self, url: str, folder: Path, *, api_key: str = "", timeout_s: float = 120.0) -> None:
        """`url` with or without `/v1`."""
        self._root, self._folder = url.rstrip("/").removesuffix("/v1"), folder.absolute()
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._options: dict[str, Any] = {"timeout_s": timeout_s, "connections": None, "headers": headers}
        self._unanswered: set[str] = set()  # their files are there, and the server may have taken them

    async def load(self, adapter: Path, name: str) -> None:
        """Afterwards the server answers requests for the model `name`. Refused: nothing is left on disk.

        Cancelled or without an answer, the server may have taken it: the files stay until `unload` or `tidy`, and the
        same load may be asked for again. A name must never be given to another adapter: the server would answer from
        the prefix cache of the first.
        """
        place, again = self._folder / name, name in self._unanswered
        try:
            if not again:  # the server may be reading them
                await run_sync(_write, adapter, place)
                self._unanswered.add(name)
            await self._ask("load", {"lora_name": name, "lora_path": str(place)})
        except ConfigError:
            if not (again and name in await self.names()):  # taken the first time, it is refused the second
                self._remove(name)
                raise
        self._unanswered.discard(name)

    async def unload(self, name: str) -> None:
        """Requests that run on it end as they would have; further ones are refused. One that is gone is no error."""
        try:
            await self._ask("unload", {"lora_name": name})
        finally:
            self._remove(name)

    def tidy(self, names: Iterable[str]) -> None:
        """Removes the files of loads that were never answered, of adapters that are not among `names`."""
        for name in self._unanswered.difference(names):
            self._remove(name)

    async def names(self) -> list[str]:
        """All models that the server has now, adapters among them. Raises `NoModelListError` where it has no list."""
        answer = await self._send("GET", "/v1/models", None)
        if answer.status_code >= 500:
            await check_status(answer, f"engine {self._root}")
        if answer.status_code != 200:
            raise NoModelListError(f"{self._root} answers no list of models: give the URL of a vLLM server")
        with expected_shape(f"engine {self._root}"):
            return [str(entry["id"]) for entry in answer.json()["data"]]

    async def _ask(self, what: str, body: dict[str, str]) -> None:
        path = f"/v1/{what}_lora_adapter"
        answer = await self._send("POST", path, body)
        if answer.status_code == 200 or (answer.status_code == 404 and what == "unload"):
            return
        refusal = f"{self._root} did not {what} {body['lora_name']} ({answer.status_code}: {answer.text[:200]})"
        if answer.status_code != 404:
            raise ConfigError(refusal)
        if "adapter" in answer.text.replace(path, "").lower():  # it has the page, and looked
            raise ConfigError(f"{refusal}: the server must see the folder {self._folder}")
        raise ConfigError(f"{self._root} cannot load adapters: start vLLM with {_NEEDED}")

    async def _send(self, method: str, path: str, body: dict[str, str] | None) -> httpx2.Response:
        async with http_client(self._root, **self._options) as client:
            with engine_errors(f"engine {self._root}"):
                answer = await client.request(method, path, json=body)
        if answer.status_code in _AWAY:
            await check_status(answer, f"engine {self._root}")
        if answer.status_code in (401, 403):
            raise ConfigError(f"{self._root} refuses the API key ({answer.status_code}): set OBSSPEC_API_KEY")
        return answer

    def _remove(self, name: str) -> None:
        shutil.rmtree(self._folder / name, ignore_errors=True)
        self._unanswered.discard(name)


def _write(adapter: Path, place: Path) -> None:
    try:
        write_peft(read_adapter(adapter), place)
    except OSError as error:
        raise ConfigError(f"cannot write {place} ({error.strerror}): free some space there") from None
