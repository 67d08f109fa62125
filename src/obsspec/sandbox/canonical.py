"""From what a command printed to its observation, by the one rule of `output`."""

from __future__ import annotations

from obsspec.sandbox.output import EMPTY, STATE_LOST, body, canonical, show
from obsspec.values import Observation

__all__ = ["EMPTY", "MAX_CHARACTERS", "STATE_LOST", "body", "byte_limit", "canonical", "observe"]

MAX_CHARACTERS = 10_000


def byte_limit(max_characters: int) -> int:
    """How many bytes of each stream are worth collecting for a text of `max_characters`: escapes included."""
    return max(1 << 18, 16 * max_characters)


def observe(
    stdout: bytes,
    stderr: bytes,
    *,
    exit_code: int,
    max_characters: int = MAX_CHARACTERS,
    clipped: bool = False,
    timed_out_after_s: float | None = None,
    state_lost: bool = False,
) -> Observation:
    """The observation of one command. `clipped`: the streams are only the head of what was printed."""
    shown = show(
        stdout,
        stderr,
        exit_code=exit_code,
        max_characters=max_characters,
        clipped=clipped,
        timed_out_after_s=timed_out_after_s,
        state_lost=state_lost,
    )
    return Observation(
        text=shown.text,
        exit_code=exit_code,
        truncated=shown.truncated,
        timed_out=timed_out_after_s is not None,
        state_lost=state_lost,
        empty=shown.empty,
        raw=stdout + stderr,
    )
