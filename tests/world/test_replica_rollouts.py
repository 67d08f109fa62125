"""Whole rollouts beside a replica: what it says is right, whatever was predicted and rolled back on the way."""

from __future__ import annotations

from itertools import islice

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from obsspec.sandbox.local import LocalSandboxes
from obsspec.tasks.environment import TaskEnvironment
from obsspec.tasks.scripted import Final, scripted_agent
from obsspec.tasks.suite import Split
from obsspec.train.record import Plan, plans
from obsspec.values import Exchange
from obsspec.world.replica import Replicas
from tests.world.test_replica import Rollout, rollout

pytestmark = pytest.mark.sandbox
REPLICAS = Replicas(lambda environment: environment.task.spec if isinstance(environment, TaskEnvironment) else None)


def test_it_is_right_about_every_call_of_scripted_agents() -> None:
    async def one(plan: Plan) -> None:
        agent, environment = scripted_agent(plan.task, plan.manner), TaskEnvironment(plan.task, LocalSandboxes())
        async with LocalSandboxes().open(plan.task.spec) as real, REPLICAS.open(environment, "seed") as replica:
            beside = Rollout(real, replica)
            while not isinstance(move := agent.next(beside.history), Final) and len(beside.history) < 12:
                guessed = await beside.guess(move)
                await beside.guess("ls -la; echo side > side", ahead=[guessed])
                assert await beside.commit(move) == tuple(o.text for o in guessed.observations), move

    async def main() -> None:
        for plan in islice(plans(Split.TEST, 5), 9):
            await one(plan)

    anyio.run(main)


COMMANDS = (
    "echo $n >> f; n=$((n+1))",
    "cat f; echo $n; ls -la",
    "mkdir -p d && cd d",
    "cd; rm -rf d f",
    "false; exit 4",
)
MOVES = st.lists(
    st.tuples(st.sampled_from(["predict", "ahead", "cancel", "commit", "commit"]), st.sampled_from(COMMANDS)),
    min_size=4,
    max_size=10,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MOVES, st.data())
def test_it_survives_any_order_of_guesses_cancellations_and_rollbacks(
    moves: list[tuple[str, str]], data: st.DataObject
) -> None:
    async def main() -> None:
        async with rollout() as one:
            ahead: list[Exchange] = []
            certain: str | None = None  # the turn of the committed head, once it was asked about
            for move, drawn in moves:
                command = certain if certain is not None and not ahead else drawn
                if move == "commit":
                    command = certain or drawn
                    (said,) = await one.predict(command)
                    assert await one.commit(command) == tuple(o.text for o in said.observations)
                    ahead, certain = [], None
                elif move == "cancel":
                    with anyio.move_on_after(data.draw(st.floats(0, 0.02))):
                        await one.predict(command, ahead=ahead)
                    certain = certain or command
                else:
                    guess = await one.guess(command, ahead=ahead)
                    certain = certain or command
                    ahead = [*ahead, guess] if move == "ahead" else ahead[:-1]
            assert one.replica.silence is None

    anyio.run(main)
