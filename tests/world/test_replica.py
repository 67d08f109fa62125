"""The replica says what the real sandbox will print, follows it, and falls silent when it can not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from obsspec.sandbox.local import LocalSandboxes
from obsspec.sandbox.local_sandbox import LocalSandbox
from obsspec.sandbox.spec import FileSpec, SandboxSpec
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.values import Context, Exchange, Observation, Prediction, ToolCall
from obsspec.world.cascade import Cascade
from obsspec.world.replica import Replica, Replicas, ReplicaSettings, Silence
from obsspec.world.replica_states import Trouble
from obsspec.world.rules.model import Rules
from obsspec.world.stages import Stage
from tests.sandbox.support import eventually, host_processes

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]
SPEC = SandboxSpec(files=(FileSpec("a", b"1\n"), FileSpec("d/b", b"2\n")))
ENVIRONMENT = ScriptedEnvironment("task", lambda calls: Observation(""))
SETTINGS = ReplicaSettings(timeout_s=1.0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def calls(*commands: str) -> tuple[ToolCall, ...]:
    return tuple(ToolCall("bash", {"command": command}) for command in commands)


@dataclass
class Rollout:
    """A rollout's sandbox beside its replica."""

    real: LocalSandbox
    replica: Replica
    history: list[Exchange] = field(default_factory=list[Exchange])

    def context(self, commands: Sequence[str], ahead: Sequence[Exchange] = ()) -> Context:
        history = (*self.history, *ahead)
        return Context((), (), calls(*commands), history, "task", "task", len(self.history))

    async def predict(self, *commands: str, ahead: Sequence[Exchange] = (), breadth: int = 1) -> list[Prediction]:
        said: list[Prediction] = []
        await self.replica.predict(self.context(commands, ahead), breadth, said.append)
        return said

    async def guess(self, *commands: str, ahead: Sequence[Exchange] = ()) -> Exchange:
        """As a speculative turn, whose own prediction stands for what it printed."""
        (said,) = await self.predict(*commands, ahead=ahead)
        return Exchange(calls(*commands), said.observations)

    async def commit(self, *commands: str, other: str | None = None) -> tuple[str, ...]:
        """Execute for real and learn. `other`: what the real sandbox is made to have printed."""
        context = self.context(commands)
        observations = tuple([await self.real.execute(call) for call in context.calls])
        if other is not None:
            observations = (*observations[:-1], Observation(other))
        self.replica.learn(context, observations)
        self.history.append(Exchange(context.calls, observations))
        return tuple(observation.text for observation in observations)

    async def step(self, *commands: str) -> None:
        """Predict, commit, and check that the prediction was right."""
        said = await self.predict(*commands)
        assert [observation.text for observation in said[0].observations] == list(await self.commit(*commands))

    async def settled(self) -> None:
        """Until what was committed has been compared."""
        counts = self.replica.counts

        def known() -> bool:
            done = counts.equal + counts.differed + counts.differed_volatile + counts.unknown
            return self.replica.silence is not None or done == len(self.history)

        assert await eventually(known)


@asynccontextmanager
async def rollout(spec: SandboxSpec | None = SPEC) -> AsyncGenerator[Rollout]:
    replicas = Replicas(lambda environment: spec, SETTINGS)
    async with (
        LocalSandboxes(SETTINGS.timeout_s).open(spec or SPEC) as real,
        replicas.open(ENVIRONMENT, "seed") as replica,
    ):
        yield Rollout(real, replica)


async def test_it_says_what_the_real_sandbox_prints() -> None:
    async with rollout() as one:
        for command in ("ls -la", "x=1; cd d; cat b; echo new > c", "ls -la; echo $x; pwd", "exit 3", "cat nothing"):
            await one.step(command)
        await one.step("echo two", "echo $x; rm c; ls", "false")
        await one.settled()
        assert (one.replica.counts.equal, one.replica.silence) == (6, None)


async def test_it_follows_turns_that_were_never_predicted() -> None:
    async with rollout() as one:
        await one.commit("echo early > early")  # also before it is ready
        await one.commit("cd d")
        await one.step("cat ../early; pwd")
        await one.commit("rm b")
        await one.step("ls -la")


async def test_turns_without_calls_and_turns_that_were_not_learnt_are_part_of_the_history() -> None:
    async with rollout() as one:
        one.history.append(Exchange((), (Observation("malformed call"),)))
        await one.step("echo 1 > f")
        one.history.append(Exchange(calls("echo 2 >> f"), (await one.real.execute(calls("echo 2 >> f")[0]),)))
        one.history.append(Exchange((), (Observation("malformed call"),)))
        first = await one.guess("cat f")
        assert first.observations[0].text == "1\n2\n(exit_code=0)"
        broken = Exchange((), (Observation("malformed call"),))
        assert await one.guess("cat f", ahead=[first, broken]) == first
        await one.step("cat f")
        assert one.replica.silence is None


async def test_predicted_turns_run_on_copies_and_a_rollback_leaves_no_trace() -> None:
    async with rollout() as one:
        first = await one.guess("echo 1 > a; echo done")
        wrong = await one.guess("rm a; x=wrong", ahead=[first])
        assert (await one.predict("cat a; echo $x", ahead=[first, wrong]))[0].observations[0].exit_code == 0
        other = await one.guess("echo other > a", ahead=[first])
        assert (await one.predict("cat a", ahead=[first, other]))[0].observations[0].text == "other\n(exit_code=0)"
        await one.commit("echo 1 > a; echo done")
        await one.step("cat a; echo $x; ls")
        await one.step("ls; echo go on")
        assert one.replica.silence is None


async def test_a_branch_that_is_committed_is_not_run_again() -> None:
    async with rollout() as one:
        first = await one.guess("echo $RANDOM > r")
        second = await one.guess("cat r", ahead=[first])
        await one.commit("echo $RANDOM > r")
        again = await one.guess("cat r")
        assert again == second  # a second run would have drawn another number


async def test_states_are_copied_ahead_only_as_long_as_branches_ask_for_them() -> None:
    async with rollout() as one:
        await one.step("echo 0 > f")
        assert await eventually(lambda: one.replica.forks == 2)
        for number in range(3):
            await one.step(f"echo {number} >> f")
        assert await eventually(lambda: one.replica.forks == 1)
        first = await one.guess("echo more >> f")
        second = await one.guess("wc -l < f", ahead=[first])
        assert second.observations[0].text == "5\n(exit_code=0)"
        assert await eventually(lambda: one.replica.forks == 3)  # those of both turns, and a copy of the second
        third = await one.guess("rm f; ls", ahead=[first, second])
        assert third.observations[0].text == "a\nd\n(exit_code=0)"
        await one.step("echo more >> f")
        await one.step("wc -l < f")


async def test_old_forks_are_dropped_once_they_cannot_be_reached() -> None:
    async with rollout() as one:
        for number in range(12):
            first = await one.guess(f"echo {number}")
            for side in range(3):
                await one.guess(f"echo {side} > s", ahead=[first])
            await one.commit(f"echo {number}")
        assert await eventually(lambda: 4 <= one.replica.forks <= 8)  # the position, three that may come true, copies
        await one.commit("ls")
        assert await eventually(lambda: one.replica.forks <= 2)
        assert one.replica.silence is None


async def test_cancelling_a_prediction_ends_what_ran_for_it_alone() -> None:
    async with rollout() as one:
        first = await one.guess("echo 1")
        with anyio.move_on_after(0.3):
            await one.predict("sleep 0.9 # replica-4101", ahead=[first])
        assert await eventually(lambda: host_processes("replica-4101") == [])
        await one.step("echo 1")
        await one.step("echo 2")


async def test_cancelling_the_prediction_of_a_turn_that_is_committed_does_not_stop_it() -> None:
    async with rollout() as one:
        with anyio.move_on_after(0.2):
            await one.predict("sleep 0.4; echo slow > slow")
        await one.commit("sleep 0.4; echo slow > slow")
        await one.step("cat slow")
        await one.settled()
        assert one.replica.silence is None


async def test_background_jobs_silence_it_while_they_run() -> None:
    async with rollout() as one:
        await one.step("(until [ -e stop ]; do sleep 0.01; done) & echo started")
        assert await one.predict("echo hi") == []
        await one.commit("echo hi")
        await one.commit("touch stop; sleep 0.1")
        assert one.replica.counts.refused[Trouble.JOBS] == 1
        first = await one.guess("echo over")
        assert await one.guess("ls", ahead=[first])
        assert one.replica.silence is None


async def test_what_usually_succeeds_is_left_to_it_where_it_fails() -> None:
    async with rollout() as one:
        cascade = Cascade([Stage("rules", Rules()), Stage("replica", one.replica)])
        await one.step("mkdir closed && chmod 500 closed")
        for command in ("mkdir missing/deep", "touch closed/f", "head -c 70M /dev/zero > big", "rmdir d"):
            said: list[Prediction] = []
            await cascade.predict(one.context([command]), 1, said.append)
            assert said[-1].source == "replica"
            cascade.learn(one.context([command]), (await one.real.execute(calls(command)[0]),))
            one.history.append(Exchange(calls(command), said[-1].observations))


async def test_it_foresees_nothing_where_it_will_say_nothing() -> None:
    async with rollout() as one:
        assert one.replica.foresee(one.context(["ls"])) is None  # not set up yet
        await one.step("true")
        prospect = one.replica.foresee(one.context(["ls"]))
        assert prospect is not None
        assert prospect.p > 0.9
        assert 0 < prospect.seconds < 1
        await one.step("(until [ -e stop ]; do sleep 0.01; done) & echo started")
        assert one.replica.foresee(one.context(["ls"])) is None
        await one.commit("touch stop; sleep 0.1")
        await one.commit("echo x > f && ls", other="other\n(exit_code=0)")
        await one.settled()
        assert one.replica.foresee(one.context(["ls"])) is None


async def test_answers_that_nobody_waited_for_count_as_slow() -> None:
    async with rollout() as one:
        await one.step("true")
        for _ in range(3):
            with anyio.move_on_after(0.15):
                await one.predict("sleep 0.7")
        prospect = one.replica.foresee(one.context(["ls"]))
        assert prospect is not None
        assert prospect.seconds > 0.1


async def test_a_difference_in_a_command_that_changes_something_is_drift() -> None:
    async with rollout() as one:
        await one.commit("echo x > f && ls", other="other\n(exit_code=0)")
        await one.settled()
        assert one.replica.silence is Silence.DRIFTED
        assert "echo x > f" in one.replica.detail
        assert await one.predict("cat f") == []


async def test_differences_in_commands_that_change_nothing_are_counted() -> None:
    async with rollout() as one:
        for number in range(3):
            assert one.replica.silence is None
            await one.commit("cat a", other=f"other {number}\n(exit_code=0)")
            await one.settled()
        assert one.replica.silence is Silence.DRIFTED


async def test_b10_volatile_commands_are_no_drift_and_not_trusted() -> None:
    async with rollout() as one:
        for _ in range(4):
            (said,) = await one.predict("date +%N")
            assert said.confidence < 0.5
            await one.commit("date +%N")
        await one.settled()
        assert (one.replica.counts.differed_volatile, one.replica.silence) == (4, None)
        (said,) = await one.predict("cat a")
        assert said.confidence > 0.9


async def test_a_time_out_silences_it() -> None:
    async with rollout() as one:
        await one.commit("echo x > f; sleep 5")
        await one.settled()
        assert one.replica.silence is Silence.TIMED_OUT


async def test_another_turn_than_the_certain_one_silences_it() -> None:
    async with rollout() as one:
        await one.predict("echo certain > a")
        await one.commit("cat a")
        assert one.replica.silence is Silence.DIVERGED
        assert await one.predict("cat a") == []


async def test_a_shell_that_lost_its_state_is_followed() -> None:
    async with rollout() as one:
        await one.step("x=1")
        await one.step("x=2; kill -9 $$")
        await one.step("echo $x")


async def test_a_replica_that_cannot_be_set_up_is_silent_and_harms_nothing() -> None:
    async with rollout(None) as one:
        assert one.replica.silence is Silence.NO_SPEC
        assert await one.predict("ls") == []
        await one.commit("ls")
    broken = Replicas(lambda environment: SandboxSpec(setup=("exit 1",)), SETTINGS)
    async with broken.open(ENVIRONMENT, "seed") as replica:
        said: list[Prediction] = []
        await replica.predict(Context((), (), calls("ls")), 1, said.append)
        assert (said, replica.silence) == ([], Silence.SANDBOX)
        assert "set-up command `exit 1` failed" in replica.detail


async def test_nothing_outlives_the_rollout() -> None:
    with pytest.raises(ZeroDivisionError):  # as itself, not in a group
        await _fail_while_running()
    assert await eventually(lambda: host_processes("replica-411") == [])


async def _fail_while_running() -> None:
    async with rollout() as one, anyio.create_task_group() as tasks:
        first = await one.guess("setsid sleep 50 replica-4111 2>/dev/null; (exec -a replica-4112 sleep 50) &")
        tasks.start_soon(one.predict, "sleep 0.9 # replica-4113")
        tasks.start_soon(lambda: one.predict("sleep 0.9 # replica-4114", ahead=[first]))
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    raise ZeroDivisionError
