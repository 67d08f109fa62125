"""`obsspec train publish`: the newest version of a folder, at a vLLM server whose clients are other processes.

What is published is read off the server itself, so the publisher has nothing to remember: killed, or with the server
started again, it goes on from what is there.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.to_thread import run_sync

from obsspec.train.newest import number_of
from obsspec.train.versions import VersionFolder
from obsspec.train.vllm_adapters import VllmAdapters
from obsspec.values import EngineError


class Publisher:
    """Keeps the newest version of `versions` loaded, and unloads others of its role `keep_s` after they were replaced.

    Nobody can ask the clients what they have in flight: `keep_s` is longer than they take to notice a version and to
    finish a call.
    """

    def __init__(
        self, versions: VersionFolder, server: VllmAdapters, *, keep_s: float, say: Callable[[str], None]
    ) -> None:
        self._versions, self._server, self._keep_s, self._say = versions, server, keep_s, say
        self._replaced: dict[str, float] = {}  # since when, on the loop's clock
        self._silent = False

    async def run(self, poll_s: float = 1.0) -> None:
        """Until cancelled; the newest version stays. A first version, and a server that is away, are waited for.

        Raises `ConfigError` when it refuses a version.
        """
        if await run_sync(self._versions.latest) is None:
            self._say(f"waiting for a first version in {self._versions.path}")
        while True:
            try:
                await self.once()
                self._silent = False
            except EngineError as error:
                if not self._silent:
                    self._say(f"waiting: {error}")
                self._silent = True
            await anyio.sleep(poll_s)

    async def once(self) -> None:
        newest = await run_sync(self._versions.latest)
        if newest is None:
            return
        names = await self._server.names()
        if newest.name not in names:
            await self._server.load(newest.adapter, newest.name)
            self._say(f"serving {newest.name}")
        self._server.tidy([*names, newest.name])
        now, role = anyio.current_time(), self._versions.role
        others = [name for name in names if name != newest.name and number_of(name, role) is not None]
        self._replaced = {name: self._replaced.get(name, now) for name in others}
        for name in [name for name, since in self._replaced.items() if now - since >= self._keep_s]:
            await self._server.unload(name)
            self._say(f"unloaded {name}")
