"""The agent loop, written the plain way. It does not know about speculation: that lives in the clients it calls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import anyio

from obsspec.protocols import Policy, Sandbox
from obsspec.rollout.rules import RolloutRules
from obsspec.rollout.trajectory import Trajectory, TurnRecord
from obsspec.speculation.completions import check_completion, extends
from obsspec.values import (
    EngineError,
    GenerationKey,
    Observation,
    RenderError,
    SandboxError,
    StopReason,
)

OnTurn = Callable[[Trajectory], None]


async def run_loop(
    instruction: str,
    rules: RolloutRules,
    policy: Policy,
    sandbox: Sandbox,
    on_turn: OnTurn | None = None,
    into: Trajectory | None = None,
) -> Trajectory:
    """One rollout, from the instruction to a stop reason; errors of the parts become typed stop reasons.

    `on_turn` sees the trajectory after each committed turn, once what the policy sees of it is appended; what it raises
    ends the rollout. `into`: the trajectory to fill, for whoever looks at it before it is over.

    Cancelled: the running call is cancelled and the cancellation propagates.
    """
    trajectory = into or Trajectory(instruction)
    trajectory.start_s = anyio.current_time()
    try:
        trajectory.stop = await _turns(trajectory, rules, policy, sandbox, on_turn or _nobody)
    except EngineError as error:
        trajectory.stop, trajectory.error = StopReason.ENGINE_ERROR, str(error)
    except SandboxError as error:
        trajectory.stop, trajectory.error = StopReason.SANDBOX_ERROR, str(error)
    except RenderError as error:
        trajectory.stop, trajectory.error = StopReason.RENDER_ERROR, str(error)
    trajectory.end_s = anyio.current_time()
    return trajectory


def _nobody(trajectory: Trajectory) -> None:
    """Nobody looks on."""


async def _turns(
    trajectory: Trajectory, rules: RolloutRules, policy: Policy, sandbox: Sandbox, on_turn: OnTurn
) -> StopReason:
    follow = rules.first(trajectory.instruction)
    trajectory.append_prompt(follow.prompt)
    for level in count():
        if follow.key is None:
            assert follow.stop is not None
            return follow.stop
        key = follow.key
        record = await _turn(level, key, rules, policy, sandbox, trajectory)
        if isinstance(record, StopReason):
            on_turn(trajectory)
            return record
        follow = rules.follow(level, key, record.completion, record.observations)
        if not extends(follow.prompt, key.prompt, record.completion.token_ids):
            raise RenderError(f"the prompt after turn {level} does not extend the one before it")
        trajectory.append_suffix(follow.prompt, rules.limits.max_context)
        on_turn(trajectory)
    raise AssertionError("unreachable")


async def _turn(
    level: int, key: GenerationKey, rules: RolloutRules, policy: Policy, sandbox: Sandbox, trajectory: Trajectory
) -> TurnRecord | StopReason:
    generate_start = anyio.current_time()
    completion = await policy.generate(key.prompt, key.sampling)
    check_completion(completion, key.sampling)
    generate_end = anyio.current_time()
    trajectory.append_turn(completion)
    turn = rules.parse(completion)
    observations: list[Observation] = []
    starts: list[float] = []
    ends: list[float] = []
    if turn.error is not None:
        observations.append(Observation(turn.error))
    for call in turn.calls:  # in order: calls of one turn may depend on each other
        starts.append(anyio.current_time())
        observations.append(await sandbox.execute(call))
        ends.append(anyio.current_time())
    record = TurnRecord(
        level,
        completion,
        turn.calls,
        tuple(observations),
        generate_start,
        generate_end,
        tuple(starts),
        tuple(ends),
        turn.error or "",
    )
    trajectory.turns.append(record)
    if turn.stop is not None:
        trajectory.answer = turn.answer
        return turn.stop
    return record
