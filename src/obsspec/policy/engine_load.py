"""How busy an engine behind a URL is: our own requests in flight, and those of others as far as the engine says."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import httpx2

from obsspec.policy.transport import http_client

EVERY_S = 1.0
RARELY_S = 60.0  # an engine that does not answer is asked less and less often, down to this
TIMEOUT_S = 5.0
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
MOST = 1e9  # requests: no engine has more
LONGEST = 1 << 22  # bytes of an answer that are read: no engine has more to say


class EngineLoad:
    """Requests in flight. `watch` asks the engine's `/metrics` now and then, for as long as it runs.

    An engine that has no such page, or stops answering, is taken to serve nobody else. What it says is up to a second
    old; our own requests are counted as they come and go.
    """

    def __init__(self, root: str, headers: dict[str, str]) -> None:
        """`root`: the engine's URL without `/v1`."""
        self._root = root
        self._headers = headers
        self._own = 0
        self._others = 0

    @property
    def busy(self) -> int:
        return self._own + self._others

    @contextmanager
    def request(self) -> Generator[None, None, None]:
        """Around each of our own."""
        self._own += 1
        try:
            yield
        finally:
            self._own -= 1

    async def watch(self) -> None:
        """Never returns, and raises nothing of its own."""
        async with http_client(self._root, timeout_s=TIMEOUT_S, connections=1, headers=self._headers) as client:
            wait_s = EVERY_S
            while True:
                own = self._own
                total = await _requests(client)
                self._others = max(0, (total or 0) - max(own, self._own))  # one that came or went meanwhile is ours
                wait_s = min(2 * wait_s, RARELY_S) if total is None else EVERY_S
                await anyio.sleep(wait_s)


async def _requests(client: httpx2.AsyncClient) -> int | None:
    """Running and waiting at the engine, over all its parts; None if it does not say."""
    try:
        with anyio.fail_after(TIMEOUT_S):
            async with client.stream("GET", "/metrics") as response:
                if response.status_code != 200:
                    return None
                page = b""
                async for chunk in response.aiter_bytes():
                    page += chunk
                    if len(page) > LONGEST:
                        return None
    except (httpx2.HTTPError, TimeoutError):
        return None
    return read_gauges(page.decode(errors="replace"))


def read_gauges(page: str) -> int:
    """The sum of the gauges on a page in Prometheus' text format; what is no number is left out."""
    total = 0.0
    for line in page.split("\n"):
        if not line.startswith(GAUGES):
            continue
        name, _, _ = line.partition("{") if "{" in line else line.partition(" ")
        value = line[len(name) :].rpartition("}")[2].split()
        if name in GAUGES and value:
            total += _number(value[0])
    return int(total)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return min(number, MOST) if math.isfinite(number) and number > 0 else 0.0
