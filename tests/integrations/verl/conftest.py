"""One Ray and one stack of workers for all tests of a run: they take a while to start."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TROUBLE = ("down", "hang", "endless", "empty", "garbage", "wrong", "deaf", "names", "version", "huge")


def _trouble(language: dict[str, Any], number: int) -> dict[str, Any]:
    """A loop that shares nothing with others: what is often wrong, or fails, is left alone after a while."""
    return {**language, "gate": False, "predict_timeout_s": 0.4 + number / 1000, "world_model_max_tokens": 96}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture(scope="session")
def running() -> Generator[None, None, None]:
    """Ray."""
    from tests.integrations.verl.cluster import ray_running

    with ray_running():
        yield


@pytest.fixture(scope="session")
def world_model(folder: Path) -> Generator[Any, None, None]:
    """The server that the loops with a language model ask."""
    from tests.integrations.verl.model import write_model
    from tests.integrations.verl.oracle import world_model_server

    with world_model_server(write_model(folder / "model")) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def started(running: None, world_model: Any, folder: Path) -> Any:
    from tests.integrations.verl.cluster import configuration, start

    del running
    language = {"world_model_url": world_model.url, "world_model_name": "oracle", "rules": False, "memory": False}
    loops = {
        "off": {"speculate": False},
        "deep": {"gate": False, "depth": 3, "breadth": 2, "memory_path": str(folder / "memory.sqlite")},
        "language": {**language, "gate": False, "predict_timeout_s": 0.5, "world_model_max_tokens": 96},
        "chain": {**language, "gate": False, "depth": 3, "world_model_max_tokens": 96},
        **{f"trouble-{mode}": _trouble(language, number) for number, mode in enumerate(TROUBLE)},
        "down": {**language, "gate": False, "world_model_url": "http://127.0.0.1:9"},
    }
    return start(configuration(folder, loops))


@pytest.fixture
def cluster(started: Any) -> Generator[Any, None, None]:
    """With nothing left of the test before, and nothing left afterwards."""
    started.servers.set(fault="", token_s=0.004)
    yield started
    started.servers.seen()


@pytest.fixture
def oracle(world_model: Any) -> Any:
    world_model.mode = "right"
    return world_model
