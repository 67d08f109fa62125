"""These tests run in virtual time: nothing here ever sleeps for real."""

from __future__ import annotations

from typing import Any

import pytest

from obsspec.testing.virtual_clock import Backend, backend_options


@pytest.fixture(params=[Backend.TRIO, Backend.ASYNCIO])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return str(request.param), backend_options(request.param)
