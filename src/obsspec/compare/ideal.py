"""The least agent latency that speculation could reach on a rollout: all predictions right, at once, and for nothing.

From the times of the sequential arm. What stays is the policy's own time, and what the last tools take longer than the
generation after them: an answer is given only when everything before it is verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from obsspec.rollout.trajectory import Trajectory


def ideal_s(trajectory: Trajectory, *, guarded: bool) -> float:
    """Seconds. Without guards a call is sent when the one before has answered; with guards when it is generated, and
    tool time is taken for transport, which overlaps."""
    generated = answered = 0.0
    for turn in trajectory.turns:
        generated += turn.generate_end_s - turn.generate_start_s
        sent = generated if guarded else max(generated, answered)
        answered = max(answered, sent + turn.tool_s)
    return max(generated, answered)


def hidden_ideal(trajectories: Sequence[Trajectory], *, guarded: bool) -> float:
    """Hidden tool time at the ideal latency, over all rollouts: an arm that generates faster may hide more."""
    saved = sum(trajectory.agent_s - ideal_s(trajectory, guarded=guarded) for trajectory in trajectories)
    tool_s = sum(trajectory.tool_s for trajectory in trajectories)
    return saved / tool_s if tool_s else float("nan")
