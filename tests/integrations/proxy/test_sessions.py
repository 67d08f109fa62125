"""Which request belongs to which conversation, who gets which answer, and what is bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from obsspec.integrations.proxy.asked import Route
from obsspec.integrations.proxy.fields import FieldHabits
from obsspec.integrations.proxy.ids import IdTurns
from obsspec.values import Completion, FinishReason, Turn
from tests.integrations.proxy.engine import (
    COMMANDS,
    TOOLS,
    Agent,
    Answer,
    Engine,
    Json,
    running,
    wait_for,
)
from tests.policy.loopback import Reply, Request

pytestmark = pytest.mark.anyio


def fields(**more: Any) -> Json:
    return {"model": "m", "temperature": 1.0, "seed": 7, "tools": TOOLS, **more}


async def all_of(agents: list[Agent]) -> list[list[Answer]]:
    async with anyio.create_task_group() as tasks:
        for agent in agents:
            tasks.start_soon(agent.run)
    return [agent.answers for agent in agents]


@pytest.mark.parametrize("named", [False, True])
async def test_g01_rollouts_of_one_group_at_the_same_time_each_get_their_own_answers(named: bool) -> None:
    """Same first prompt, with and without the same seed; with a seed the answers are those of the engine."""
    async with running(Engine(first_s=0.01)) as (server, url, service):

        def agents(at: str) -> list[Agent]:
            return [
                Agent(at, fields=fields(seed=n // 2), headers={"x-obsspec-session": f"{n}"} if named else {})
                for n in range(12)
            ]

        direct = await all_of(agents(server.url))
        await Agent(url).run()
        assert await all_of(agents(url)) == direct
        assert service.parts.figures.claimed > 20


@pytest.mark.parametrize("name", ["authorization", "x-goog-api-key"])
async def test_an_early_answer_is_never_given_to_other_credentials(name: str) -> None:
    """Neither is what one client's tools said ever sent for another."""
    engine = Engine(("cat secret", "cat secret", "ls"))
    async with running(engine, idle_s=60) as (server, url, service):
        for _ in range(2):
            await Agent(url, headers={name: "Bearer a"}, tool=lambda f, c: "of a").run()
        claimed = service.parts.figures.claimed
        before = len(engine.bodies)
        other: dict[str, Any] = {"headers": {name: "Bearer b"}, "tool": lambda f, c: "of b"}
        assert await Agent(url, **other).run() == await Agent(server.url, **other).run()
        assert claimed >= 2
        assert service.parts.figures.claimed - claimed <= 2
        assert not [body for body in engine.bodies[before:] if "of a" in json.dumps(body)]


async def test_h03_headers_that_bind_a_session_to_a_replica_go_with_early_requests() -> None:
    engine = Engine()
    async with running(engine, priorities=True) as (server, url, service):
        await Agent(url, headers={"x-session-id": "s-17", "x-route": "r 3"}).run()
        early = [request for request in server.requests if request.body and "priority" in request.body]
        assert len(early) == service.parts.figures.started > 0
        assert {(request.headers["x-session-id"], request.headers["x-route"]) for request in early} == {("s-17", "r 3")}


class Varying(Agent):
    """`vary` says what is different about each request, by the number of its messages."""

    async def ask(self, client: httpx2.AsyncClient, messages: list[Json]) -> Json:
        self.fields = {**self.fields, **VARIATIONS[self.task](len(messages))}
        return await super().ask(client, messages)


VARIATIONS: dict[str, Callable[[int], Json]] = {
    "a budget": lambda n: {"max_tokens": 1000 - n},
    "where the new part begins": lambda n: {"extra": {"seen": n - 1}} if n > 1 else {},
    "a seed for each turn": lambda n: {"seed": hash((n, "salt"))},
    "a name for each turn": lambda n: {"request_id": f"{n:x}-{n * 7919:x}"},
}


@pytest.mark.parametrize("what", VARIATIONS)
async def test_fields_that_change_from_turn_to_turn_are_expected_if_they_can_be_counted(what: str) -> None:
    async with running(Engine()) as (server, url, service):
        direct = await Varying(server.url, task=what).run()
        for _ in range(3):
            assert await Varying(url, task=what).run() == direct
        figures = service.parts.figures
        if what in ("a budget", "where the new part begins"):
            assert figures.claimed >= 8
        else:
            assert figures.claimed == 0
            assert figures.started <= 3  # it is left alone


async def test_a_client_that_rewrites_its_history_is_served_as_ever() -> None:
    """Old results replaced by a note: nothing goes on from what was there."""

    class Forgetful(Agent):
        async def ask(self, client: httpx2.AsyncClient, messages: list[Json]) -> Json:
            old = [m if m["role"] != "tool" else {**m, "content": "[removed]"} for m in messages[:-1]]
            return await super().ask(client, [*old, messages[-1]])

    async with running(Engine()) as (server, url, _):
        direct = await Forgetful(server.url).run()
        assert await Forgetful(url).run() == direct


async def test_c15_the_results_of_one_turn_are_predicted_together_or_not_at_all() -> None:
    engine = Engine((("echo a > f", "cat f"), ("cat f", "date"), ("cat f", "cat f")))
    async with running(engine) as (server, url, service):
        direct = await Agent(server.url).run()
        for _ in range(3):
            assert await Agent(url).run() == direct
        assert service.parts.figures.claimed > 0


async def test_c16_a_turn_that_was_cut_is_not_gone_on_from() -> None:
    async with running(Engine(finish="length")) as (_, url, service):
        for _ in range(2):
            await Agent(url).run()
        assert service.parts.figures.started == 0


async def test_f03_an_empty_answer_is_passed_on_and_predicts_nothing() -> None:
    async def empty(request: Request, reply: Reply) -> bool:
        choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
        await reply.status(200, json.dumps({"choices": [choice]}), content_type="application/json")
        return True

    engine = Engine()
    async with running(engine) as (server, url, service):
        await Agent(url).run()
        figures = service.parts.figures
        before = figures.started, figures.attempts
        engine.fault = empty
        for _ in range(2):
            assert await Agent(url, task="new").run() == await Agent(server.url, task="new").run()
        assert (figures.started, figures.attempts) == before
    ids = IdTurns(Route.GENERATE, None, FieldHabits().own())
    assert ids.parse(Completion((), (), FinishReason.STOP)) == Turn()


async def test_c17_malformed_arguments_are_passed_on_and_predict_nothing() -> None:
    engine = Engine(arguments='{"command": "ls"')
    async with running(engine) as (server, url, service):
        agent: dict[str, Any] = {"turns": 4, "tool": lambda files, command: "error", "command": lambda call: ""}
        assert await Agent(url, **agent).run() == await Agent(server.url, **agent).run()
        assert service.parts.figures.started == 0


# Limits -------------------------------------------------------------------------------------------------------------


async def test_no_more_sessions_are_remembered_than_allowed() -> None:
    async with running(Engine(), max_sessions=3) as (server, url, service):
        direct = await all_of([Agent(server.url, task=f"{n}") for n in range(9)])
        assert await all_of([Agent(url, task=f"{n}") for n in range(9)]) == direct
        assert len(service.conversations) <= 3
        assert (await Agent(url, task="new").run())[0].status == 200
        assert service.parts.figures.sessions_evicted > 0


async def test_no_more_bytes_are_remembered_than_allowed() -> None:
    async with running(Engine(), sessions_mib=1) as (server, url, service):
        for number in range(4):
            agent: dict[str, Any] = {"task": f"{number}" * 400_000, "turns": 2}
            assert await Agent(url, **agent).run() == await Agent(server.url, **agent).run()
            assert service.conversations.size <= 1 << 20
        assert len(service.conversations) == service.parts.figures.sessions_evicted == 2
        assert f"obsspec_session_bytes {float(service.conversations.size)}" in service.metrics.text().decode()


async def test_a_silent_session_is_forgotten_and_its_early_request_ended() -> None:
    async with running(Engine(("cat nothing", "cat nothing", "ls")), idle_s=0.3) as (_, url, service):
        await Agent(url).run()
        await Agent(url, turns=2).run()  # and never comes back
        await wait_for(lambda: len(service.conversations) == 0)
        assert service.parts.limits.branches == 0


@pytest.mark.parametrize("limit", [{"buffer_mib": 0}, {"max_branches": 0}])
async def test_without_room_for_early_answers_there_are_none(limit: dict[str, int]) -> None:
    async with running(Engine(), **limit) as (server, url, service):
        direct = await Agent(server.url).run()
        for _ in range(2):
            assert await Agent(url).run() == direct
        assert service.parts.figures.claimed == 0
        assert service.parts.limits.held == 0


async def test_h01_a_proxy_that_can_not_keep_up_starts_nothing() -> None:
    async with running(Engine(), max_lag_s=0.15) as (server, url, service):
        direct = await Agent(server.url).run()
        await Agent(url).run()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_hog)
            await wait_for(lambda: service.parts.limits.is_late)
            started = service.parts.figures.started
            assert await Agent(url, turns=2).run() == direct[:2]
            assert service.parts.figures.started == started
            tasks.cancel_scope.cancel()
        await wait_for(lambda: not service.parts.limits.is_late)


async def _hog() -> None:
    while True:
        time.sleep(0.25)  # noqa: ASYNC251 - the event loop is to be late
        await anyio.sleep(0.001)


async def test_told_to_stop_it_ends_what_nobody_asked_for_and_finishes_the_rest() -> None:
    engine = Engine(("cat nothing", "cat nothing", "ls"), first_s=0.2)
    async with running(engine) as (_, url, service):
        await Agent(url).run()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Agent(url, tool_s=1, turns=2).run)
            await wait_for(lambda: service.parts.limits.branches == 1)
            waiting = Agent(url, task="other", turns=1)
            tasks.start_soon(waiting.run)
            await wait_for(lambda: any(body["messages"][0]["content"] == "other" for body in engine.bodies))
            service.drain()
            assert service.parts.limits.branches == 0
            await wait_for(lambda: bool(waiting.answers))
            tasks.cancel_scope.cancel()
        assert waiting.answers[0].status == 200


async def test_in_shadow_mode_nothing_is_started_and_it_is_told_what_would_have_been_gained() -> None:
    engine = Engine(first_s=0.05)
    async with running(engine, shadow=True) as (server, url, service):
        direct = await Agent(server.url).run()
        sent = len(server.requests)
        for _ in range(2):
            assert await Agent(url, tool_s=0.1).run() == direct
        figures = service.parts.figures
        assert (figures.started, figures.claimed) == (0, 0)
        assert len(server.requests) - sent == 2 * len(direct)
        report = figures.report()
        assert report["mode"] == "shadow"
        assert report["match_share"] > 0.5  # type: ignore[operator]
        assert 0.2 < figures.hidden_s <= figures.tool_s


# A black box --------------------------------------------------------------------------------------------------------

REQUESTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("next", "again", "other", "leave"))), max_size=14)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(REQUESTS)
def test_any_requests_in_any_order_are_answered_as_without_a_proxy(steps: list[tuple[int, str]]) -> None:
    """Four recorded conversations, interleaved, with requests that come twice, differ, or are given up."""
    anyio.run(_replay, steps)


async def _replay(steps: list[tuple[int, str]]) -> None:
    engine = Engine(COMMANDS[:4])
    async with running(engine) as (server, url, _), httpx2.AsyncClient(trust_env=False, verify=False) as client:
        await Agent(server.url).run()
        recorded = [request.body for request in server.requests]
        await Agent(url, client=client).run()
        at = [0, 0, 0, 0]
        for session, what in steps:
            body = recorded[min(at[session], len(recorded) - 1)]
            if what == "leave":
                with anyio.move_on_after(0.001):
                    await client.post(f"{url}/v1/chat/completions", json=body)
                continue
            if what == "other":
                body = {**body, "seed": session}
            answers = [await client.post(f"{where}/v1/chat/completions", json=body) for where in (server.url, url)]
            assert answers[0].content == answers[1].content
            assert answers[0].headers["x-engine"] == answers[1].headers["x-engine"]
            at[session] += what == "next"
