"""The simulated world of a workload: what the policy says, what tools answer, and the format between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType

import anyio

from obsspec.protocols import Sandbox
from obsspec.rollout.collector import Verdict
from obsspec.rollout.trajectory import Trajectory
from obsspec.sandbox.commands import Commands, Performed
from obsspec.sim import ids
from obsspec.sim.ids import Mark
from obsspec.sim.workload import PlannedTurn, Workload
from obsspec.values import (
    Completion,
    FinishReason,
    Guard,
    Observation,
    Refused,
    Sampling,
    SandboxError,
    StopReason,
    Tokens,
    ToolCall,
    Turn,
)

_ANSWER = Turn(answer="done", stop=StopReason.FINAL)
_LOGPROBS = (-1.0,)


class World:
    """Everything that is a function of the workload alone; no state, so both arms share one."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._logprobs: tuple[float, ...] = _LOGPROBS * 4096

    def say(self, prompt: Tokens, sampling: Sampling) -> Completion:
        """The policy: the planned turn on the path, any turn of the workload off it.

        After an opened observation it is the world model, which writes as much as it is asked for.
        """
        last = prompt[-1]
        if last == ids.FILLER:
            ending = FinishReason.LENGTH
            return Completion(ids.filled(sampling.max_tokens, last), self._of(sampling.max_tokens), ending, "0")
        if ids.mark(last) is Mark.PLACE:
            rollout, level = ids.at(last)
            planned = self.workload.turns[rollout][level]
            end = ids.make(Mark.CALL if planned.command else Mark.ANSWER, ids.number(last))
        else:
            planned = self.astray(ids.mix(last, sampling.seed))
            end = ids.make(Mark.LOST_CALL, ids.mix(last, sampling.seed, 1))
        count = min(planned.tokens, sampling.max_tokens)
        return Completion(ids.filled(count, end), self._of(count), FinishReason.STOP, "0")

    def planned(self, turn_id: int) -> PlannedTurn:
        """What a call is: its command, latency and the length of its observation."""
        if ids.mark(turn_id) is Mark.LOST_CALL:
            return self.astray(ids.number(turn_id))
        rollout, level = ids.at(turn_id)
        return self.workload.turns[rollout][level]

    @staticmethod
    def opened(prompt: Tokens, completion: Tokens) -> Tokens:
        """The prompt on which a language model writes the observation of a turn."""
        return (*prompt, *completion, ids.FILLER)

    def astray(self, draw: int) -> PlannedTurn:
        pool = self.workload.pool
        return pool[draw % len(pool)]

    def truth(self, turn_id: int) -> str:
        """What a call prints; its first word is how many tokens that is."""
        return f"{self.planned(turn_id).observation_tokens} {ids.number(turn_id)}"

    def _of(self, count: int) -> tuple[float, ...]:
        if len(self._logprobs) < count:
            self._logprobs = _LOGPROBS * (2 * count)
        return self._logprobs[:count]


def wrong(truth: str, variant: int = 0) -> str:
    """Another text of the same length."""
    return f"{truth} !{variant}"


class SimRenderer:
    """The format of simulated rollouts: a `Renderer`. Prompts grow by real numbers of tokens."""

    stop_token_ids: Tokens = ()
    observation_stop_ids: Tokens = ()

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, instruction: str) -> Tokens:
        """`instruction` is the number of the rollout."""
        rollout = int(instruction)
        first = ids.make(Mark.START, rollout)
        return (first, *ids.filled(max(1, self._world.workload.prompt_tokens - 1), ids.place(rollout, 0)))

    def parse(self, completion: Completion) -> Turn:
        last = completion.token_ids[-1]
        if ids.mark(last) is Mark.ANSWER:
            return _ANSWER
        command = self._world.planned(last).command
        return Turn(calls=(ToolCall("bash", MappingProxyType({"command": command, "turn": last})),))

    def extend(self, prompt: Tokens, completion: Tokens, observations: Sequence[Observation]) -> Tokens:
        text = observations[0].text
        last = completion[-1]
        if ids.mark(last) is Mark.CALL and text == self._world.truth(last):
            rollout, level = ids.at(last)
            end = ids.place(rollout, level + 1)
        else:
            end = ids.make(Mark.LOST_PLACE, ids.mix(last, ids.digest(text)))
        return prompt + completion + ids.filled(max(1, int(text.split(" ", 1)[0])), end)

    def open_observation(self, prompt: Tokens, completion: Tokens, done: Sequence[Observation]) -> Tokens:
        return self._world.opened(prompt, completion)

    def read_observation(self, token_ids: Tokens) -> str | None:
        """Simulated predictions are texts, never tokens."""
        return None


class SimSandbox:
    """A `GuardedSandbox` at the far end of a wire: the shipped order of commands, each busy for as long as planned.

    The way there and the way back take half of `way_s` each, for each request by itself. A command that the rollout
    never makes, or one out of order, is a `SandboxError`: the simulation holds the product to its first promise.
    """

    def __init__(self, world: World, rollout: int) -> None:
        self._world = world
        self._rollout = rollout
        self._level = 0
        self._commands = Commands(self._perform)

    async def execute(self, call: ToolCall) -> Observation:
        way_s = self._world.planned(call.arguments["turn"]).way_s / 2
        await anyio.sleep(way_s)
        observation = await self._commands.execute(call)
        await anyio.sleep(way_s)
        return observation

    async def execute_if(self, call: ToolCall, guard: Guard) -> Observation | Refused:
        way_s = self._world.planned(call.arguments["turn"]).way_s / 2
        await anyio.sleep(way_s)
        answer = await self._commands.execute_if(call, guard)
        await anyio.sleep(way_s)
        return answer

    async def _perform(self, call: ToolCall, say: object = None) -> Performed:
        """Says nothing before it is done."""
        turn_id = call.arguments["turn"]
        if ids.mark(turn_id) is not Mark.CALL or ids.at(turn_id) != (self._rollout, self._level):
            raise SandboxError("a call reached the sandbox that the sequential rollout does not make here")
        self._level += 1
        planned = self._world.planned(turn_id)
        await anyio.sleep(planned.tool_s - planned.way_s)
        return Performed(Observation(self._world.truth(turn_id)))


class SimEnvironment:
    """One rollout of a workload as the collector sees it; `outside_s` of set-up before the loop, and as long after."""

    def __init__(self, world: World, rollout: int, outside_s: float = 0.0) -> None:
        self._world = world
        self._rollout = rollout
        self._outside_s = outside_s
        self.task_id = self.image = self.instruction = str(rollout)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[SimSandbox, None]:
        await anyio.sleep(self._outside_s * (0.5 + ids.chance(self._rollout, 11)))
        yield SimSandbox(self._world, self._rollout)

    async def verify(self, sandbox: Sandbox, trajectory: Trajectory) -> Verdict:
        await anyio.sleep(self._outside_s * (0.5 + ids.chance(self._rollout, 12)))
        return Verdict(1.0)
