"""What a session may do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """`depth` D and `breadth` K as in `Controller`. `predict_timeout_s`: a slower prediction counts as failed.

    `strict_version`: a branch started on other weights than the loop's call would use is not claimed; otherwise a
    weight update between start and commit is accepted, and the tokens keep the version that sampled them.

    `guarded`: calls of unverified turns are sent ahead, if the sandbox can hold them back until their condition is
    known. Only for a loop that does what the continuation says (`run_loop`), and not together with `strict_version`,
    under which a turn may be drawn again.
    """

    depth: int = 1
    breadth: int = 1
    predict_timeout_s: float = 30.0
    strict_version: bool = False
    guarded: bool = False
