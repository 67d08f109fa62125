"""A world model by URL that is the newest version its server has, and says which one predicted.

The versions are those that `obsspec train publish` loads there: adapters called ROLE-NUMBER-DIGEST.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio

from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.protocols import OnTokens
from obsspec.train.vllm_adapters import NoModelListError, VllmAdapters
from obsspec.values import Completion, ConfigError, EngineError, Priority, Sampling, Tokens

POLL_S = 1.0  # how long the newest name is taken for the newest


def number_of(name: str, role: str) -> int | None:
    """Of a version's name as `VersionFolder` gives them; None for the names of other models."""
    found = re.fullmatch(rf"{re.escape(role)}-(\d{{6,}})-[0-9a-f]{{8}}", name)
    return int(found[1]) if found else None


def newest_of(names: Iterable[str], role: str) -> str | None:
    """The version of the highest number."""
    numbers = {name: number for name in names if (number := number_of(name, role)) is not None}
    return max(numbers, key=numbers.__getitem__, default=None)


class NewestVersion:
    """A `Policy`: each call goes to the newest version of `role` at the server, or to `model` while it has none.

    A call stays with the version it was sent to, and its completion names that. The first calls wait for the names;
    later ones that come while they are asked for, or cannot be asked for, go to the version known before. Errors:
    `EngineError`, also where the server refuses the key.
    """

    def __init__(self, url: str, model: str, *, role: str = "world", api_key: str = "", poll_s: float = POLL_S) -> None:
        self._endpoint = TokenEndpointPolicy(url, model, api_key=api_key)
        self._server = VllmAdapters(url, Path(), api_key=api_key)
        self._model, self._role, self._poll_s = model, role, poll_s
        self._due_s: float | None = None  # no name was ever heard
        self._first = anyio.Lock()
        self.weight_version = model

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        await self._look()
        name = self.weight_version
        asked = replace(sampling, model=name)
        completion = await self._endpoint.generate(prompt, asked, priority=priority, on_tokens=on_tokens)
        return replace(completion, weight_version=name)

    async def _look(self) -> None:
        if self._due_s is None:
            async with self._first:
                if self._due_s is None:
                    await self._ask()
        elif anyio.current_time() >= self._due_s:
            self._due_s = anyio.current_time() + self._poll_s  # nobody else asks meanwhile
            await self._ask()

    async def _ask(self) -> None:
        try:
            names = await self._server.names()
        except NoModelListError:
            names: list[str] = []  # it has one model
        except ConfigError as error:
            raise EngineError(str(error), retryable=False) from error
        except EngineError:
            if self._due_s is None:
                raise
            return  # for a moment, it may be
        self.weight_version = newest_of(names, self._role) or self._model
        self._due_s = anyio.current_time() + self._poll_s
