"""Chats through the proxy: the same bytes as without it, and sooner."""

from __future__ import annotations

import pytest

from obsspec.values import Outcome
from tests.integrations.proxy.engine import COMMANDS, Agent, Engine, Json, both, run_command, running, tool_message

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_are_those_of_the_engine_byte_for_byte_and_some_were_early(stream: bool) -> None:
    async with running(Engine()) as (server, url, service):
        await Agent(url, stream=stream).run()  # the proxy gets to know the client
        direct, through = await both(lambda at: Agent(at, stream=stream), server, url)
        assert through == direct
        assert service.parts.figures.claimed >= 4
        assert service.parts.figures.hidden_s > 0


async def test_results_are_predicted_in_chains() -> None:
    """While one tool runs, the turns after it are under way, each on the predictions before it."""
    async with running(Engine(first_s=0.02), depth=3) as (server, url, service):
        under_way: list[int] = []

        def tool(files: dict[str, str], command: str) -> str:
            under_way.append(service.parts.limits.branches)
            return run_command(files, command)

        direct = await Agent(server.url).run()
        for _ in range(2):
            assert await Agent(url, tool=tool, tool_s=0.2).run() == direct
        assert max(under_way) >= 2
        assert service.parts.figures.claimed >= 8


async def test_b09_a_result_with_the_right_text_in_another_frame_is_another_result() -> None:
    """Exit codes and names are part of what the policy sees."""
    shown = iter(range(100))

    def show(call: Json, text: str) -> Json:
        return {**tool_message(call, text), "name": f"bash{next(shown) % 2}"}

    async with running(Engine()) as (server, url, _):
        await Agent(url).run()
        shown = iter(range(100))
        direct = await Agent(server.url, show=show).run()
        shown = iter(range(100))
        assert await Agent(url, show=show).run() == direct


async def test_what_clients_ask_for_is_told() -> None:
    async with running(Engine(first_s=0.05)) as (_, url, service):
        await Agent(url, tool_s=0.1).run()
        figures = service.parts.figures
        report = figures.report()
        assert report["requests"] == {"understood": 7, "passed_on": 0, "answered_early": figures.claimed}
        assert sum(figures.outcomes.values()) == report["turns_with_calls"] == len(COMMANDS)
        assert 0.6 <= figures.tool_s < 3
        assert figures.hidden_s <= figures.generation_s
        said = service.metrics.text().decode()
        assert f"obsspec_claimed_total {float(figures.claimed)}" in said
        assert f"obsspec_hidden_seconds_total {figures.hidden_s}" in said
        assert f'obsspec_turns_total{{outcome="match"}} {float(figures.outcomes[Outcome.MATCH])}' in said
        assert "obsspec_branches 0.0" in said
