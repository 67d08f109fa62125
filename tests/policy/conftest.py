"""Engines to test clients against: scripted ones on loopback, and one real llama-server for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from obsspec.models.merge import served_model
from obsspec.policy.llama_server import EngineSettings, LlamaServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """The embedded engine in its exact mode."""
    log = tmp_path_factory.mktemp("engine") / "llama.log"
    server = LlamaServer(served_model(), EngineSettings(slots=4, context=512, threads=1), log)
    yield server
    server.stop()
