"""Chats through the proxy: the same bytes as without it, and sooner."""

from __future__ import annotations

import pytest

from tests.integrations.proxy.engine import Agent, Engine, both, running

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_are_those_of_the_engine_byte_for_byte_and_some_were_early(stream: bool) -> None:
    async with running(Engine()) as (server, url, service):
        await Agent(url, stream=stream).run()  # the proxy gets to know the client
        direct, through = await both(lambda at: Agent(at, stream=stream), server, url)
        assert through == direct
        assert service.parts.figures.claimed >= 4
        assert service.parts.figures.hidden_s > 0
