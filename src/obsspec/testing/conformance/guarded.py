"""What every `GuardedSandbox` must do; sandboxes that take no guarded calls pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio

from obsspec.history import guard_after
from obsspec.protocols import GuardedSandbox, Sandbox
from obsspec.testing.conformance.promise import require
from obsspec.values import Exchange, Guard, Observation, Refused, ToolCall

Factory = Callable[[], AbstractAsyncContextManager[Sandbox]]


class _Bench:
    """One sandbox, and what was executed in it."""

    def __init__(self, sandbox: GuardedSandbox) -> None:
        self.sandbox = sandbox
        self.history: list[Exchange] = []

    async def run(self, command: str) -> Observation:
        observation = await self.sandbox.execute(bash(command))
        self.note(command, observation)
        return observation

    async def run_if(self, command: str, guard: Guard | None = None) -> Observation | Refused:
        return await self.sandbox.execute_if(bash(command), guard or guard_after(self.history))

    def note(self, command: str, observation: Observation | Refused) -> None:
        require(isinstance(observation, Observation), "a call whose guard holds runs")
        assert isinstance(observation, Observation)
        self.history.append(Exchange((bash(command),), (observation,)))

    def guard_if(self, *expected: tuple[str, str]) -> Guard:
        """The guard of a call after these further commands and answers."""
        return guard_after([*self.history, *(Exchange((bash(c),), (Observation(t),)) for c, t in expected)])


def bash(command: str) -> ToolCall:
    return ToolCall("bash", {"command": command})


async def check_guards(factory: Factory) -> None:
    """Raises `BrokenPromiseError` for the first promise of guarded calls that is not kept."""
    for check in (_holds_or_not, _waits_in_order, _runs_once, _stays_withdrawn, _below_a_refused_one):
        async with factory() as sandbox:
            if not isinstance(sandbox, GuardedSandbox):
                return
            await check(_Bench(sandbox))


async def _holds_or_not(bench: _Bench) -> None:
    bench.note("echo first", await bench.run_if("echo first"))
    told = await bench.run("echo one")
    wrong = guard_after([*bench.history[:-1], Exchange((bash("echo one"),), (Observation(told.text + " "),))])
    require(isinstance(await bench.run_if("echo x > f", wrong), Refused), "another answer is refused")
    before = guard_after(bench.history[:-1])
    require(isinstance(await bench.run_if("echo x > f", before), Refused), "a number that has passed is refused")
    other = guard_after([bench.history[0], Exchange((bash("echo 'one'"),), (told,))])
    require(isinstance(await bench.run_if("echo x > f", other), Refused), "another command before is refused")
    require((await bench.run("cat f")).exit_code != 0, "what is refused does not run")
    bench.note("echo two", await bench.run_if("echo two"))
    require("two" in (await bench.run("echo two")).text, "ordinary calls go on after guarded ones")


async def _waits_in_order(bench: _Bench) -> None:
    """Three calls ahead of their turn, sent in the wrong order."""
    text = (await bench.run("cd /tmp")).text
    steps = ("export A=1", text), ("export B=$A", text), ("export C=$B", text)
    answers: dict[int, Observation | Refused] = {}

    async def ahead(number: int) -> None:
        answers[number] = await bench.run_if(steps[number][0], bench.guard_if(("true", text), *steps[:number]))

    async with anyio.create_task_group() as tasks:
        for number in (2, 0, 1):
            tasks.start_soon(ahead, number)
        await anyio.sleep(0.1)
        require(not answers, "a guarded call waits for the commands before it")
        await bench.sandbox.execute(bash("true"))
    require(all(isinstance(answer, Observation) for answer in answers.values()), "those that wait run when they may")
    require("1" in (await bench.sandbox.execute(bash("echo $C"))).text, "those that wait run in order")


async def _runs_once(bench: _Bench) -> None:
    """Sent twice at the same time, and once more after the answer."""
    text = (await bench.run("true")).text
    guard = bench.guard_if(("cd /tmp", text))
    answers: list[Observation | Refused] = []

    async def ahead() -> None:
        answers.append(await bench.run_if("export A=1", guard))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ahead)
        tasks.start_soon(ahead)
        await anyio.sleep(0.05)
        await bench.run("cd /tmp")
    await ahead()
    require(answers[0] == answers[1] == answers[2], "a repeated guarded call has the answer of the one run")
    bench.note("export A=1", answers[0])
    bench.note("true", await bench.run_if("true"))  # refused if there had been another command


async def _stays_withdrawn(bench: _Bench) -> None:
    text = (await bench.run("true")).text
    with anyio.move_on_after(0.2):
        await bench.run_if("export GONE=away", bench.guard_if(("cd /tmp", text)))
    await anyio.sleep(0.2)
    await bench.run("cd /tmp")
    require("away" not in (await bench.run("echo =$GONE")).text, "a call that was withdrawn does not run")
    bench.note("true", await bench.run_if("true"))


async def _below_a_refused_one(bench: _Bench) -> None:
    """The call made instead of a refused one answers what was expected of the refused one."""
    text = (await bench.run("true")).text
    above = bench.guard_if(("echo a", "b"))
    below = bench.guard_if(("echo a", "b"), ("true", text))
    answers: dict[str, Observation | Refused] = {}

    async def ahead(name: str, guard: Guard) -> None:
        answers[name] = await bench.run_if("export GONE=away", guard)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ahead, "above", above)
        tasks.start_soon(ahead, "below", below)
        await anyio.sleep(0.1)
        await bench.run("echo a")
        await bench.run("true")
    require(all(isinstance(answer, Refused) for answer in answers.values()), "a guard is on the whole history")
    require("away" not in (await bench.run("echo =$GONE")).text, "what is refused does not run")
