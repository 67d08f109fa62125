"""One real vLLM server for all tests here. `make vllm-test` installs it; without it they are skipped."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from obsspec.models.hf_folder import write_hf_folder
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.policy.openai import TokenEndpointPolicy
from obsspec.testing.vllm_server import NAME, Server, serve

PYTHON = "OBSSPEC_VLLM_PYTHON"  # the interpreter of an environment with vLLM
OPTIONS = "OBSSPEC_VLLM_OPTIONS"  # more options of the server, such as those of a GPU
# vLLM 0.32 on a CPU ends with "CPU Generator does not use offset" when a prompt with a seed is read in several steps.
CPU_OPTIONS = "--dtype float32 --enforce-eager --no-enable-chunked-prefill --max-num-batched-tokens 2048"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))
            if PYTHON not in os.environ:
                item.add_marker(pytest.mark.skip(reason=f"{PYTHON} names no environment with vLLM: `make vllm-test`"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hf_folder(tmp_path_factory.mktemp("shipped"), shipped_adapter())


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Server, None, None]:
    options = os.environ.get(OPTIONS, CPU_OPTIONS).split()
    with serve(os.environ[PYTHON], model, tmp_path_factory.mktemp("vllm"), *options) as running:
        yield running


@pytest.fixture
async def policy(server: Server) -> AsyncGenerator[TokenEndpointPolicy, None]:
    async with TokenEndpointPolicy(server.url, NAME, priorities=True) as policy:
        yield policy
