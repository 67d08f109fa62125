"""How fast the engine of a recorded run is: the cost of its steps, from the times of the generations it made.

A step takes overhead + sequence x n + token x (n + p) seconds, and prefill more if it computes any of p prompt tokens.
Added up over the steps of a generation, that is linear in what all generations together computed meanwhile: least
squares, none of the costs negative. Tokens are taken to come evenly between the first and the last one of a
generation, prompt tokens between the request and the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.trajectory import Trajectory
from obsspec.sim.roofline import StepCost
from obsspec.speculation.trace import Fate, SpanKind
from obsspec.values import ConfigError

SLOWING = 0.05  # of a further request, relative to a lone one, where the run does not tell
TELLS = 0.05  # variance of the number of generations under way from which on it tells

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Generation:
    new: int  # prompt tokens that were not there before
    tokens: int
    sent_s: float
    first_s: float
    last_s: float


def engine_cost(arms: Sequence[Sequence[RolloutResult]], chunk: int) -> StepCost:
    """Of all `arms`, each of which had the engine for itself. `chunk`: prompt tokens that a step computes at most.

    Raises `ConfigError` if no generation has two tokens.
    """
    parts = [_equations(arm, chunk) for arm in arms if any(result.trajectory.turns for result in arm)]
    rows = np.concatenate([part for part, _ in parts]) if parts else np.zeros((0, 4))
    seconds = np.concatenate([part for _, part in parts]) if parts else np.zeros(0)
    decodes = (rows[:, 0] > 0) & (rows[:, 1] == 0) & (seconds > 0)
    if not decodes.any():
        raise ConfigError("no generation of the run has two tokens or more: nothing tells how fast the engine is")
    under_way = rows[decodes, 2] / rows[decodes, 0]
    tells = bool(under_way.var() > TELLS)
    overhead_s, prefill_s, sequence_s, token_s = _nonnegative(rows, seconds, (0, 1, 2, 3) if tells else (0, 1, 3))
    if not tells:
        sequence_s = min(overhead_s, max(0.0, SLOWING * (overhead_s + token_s) - token_s))
        overhead_s -= sequence_s
    return StepCost(overhead_s=overhead_s, sequence_s=sequence_s, token_s=token_s, prefill_s=prefill_s)


def _equations(arm: Sequence[RolloutResult], chunk: int) -> tuple[Floats, Floats]:
    """Rows and seconds: of each generation from the first token to the last one, and from the request to the first."""
    made = [_row(each) for result in arm for each in _generations(result.trajectory)]
    new, tokens, sent, first, last = np.array(made, dtype=float).reshape(-1, 5).T
    begun, ended, dropped = np.array([*_dropped(arm)], dtype=float).reshape(-1, 3).T
    decoded = _amounts(np.append(first, begun), np.append(last, ended), np.append(tokens - 1, dropped))
    computed = _amounts(sent, first, new)
    prefill_steps, nothing = np.ceil(new / chunk), np.zeros(len(made))
    of_decodes = _rows(tokens - 1, nothing, decoded(last) - decoded(first), computed(last) - computed(first))
    of_prompts = _rows(prefill_steps, prefill_steps, decoded(first) - decoded(sent), computed(first) - computed(sent))
    return np.concatenate([of_decodes, of_prompts]), np.concatenate([last - first, first - sent])


def _rows(steps: Floats, prefill_steps: Floats, decoded: Floats, computed: Floats) -> Floats:
    """What overhead, prefill, sequence and token cost are multiplied with."""
    return np.stack([steps, prefill_steps, decoded, decoded + computed], axis=1)


def _nonnegative(rows: Floats, seconds: Floats, used: tuple[int, ...]) -> list[float]:
    """Least squares without negative costs: the best of the fits to a part of the columns that has none."""
    best, least = [0.0] * rows.shape[1], float("inf")
    for size in range(1, len(used) + 1):
        for columns in combinations(used, size):
            found, *_ = np.linalg.lstsq(rows[:, columns], seconds, rcond=None)
            error = float(((rows[:, columns] @ found - seconds) ** 2).sum())
            if found.min() >= 0 and error < least * (1 - 1e-9):
                least = error
                best = [0.0] * rows.shape[1]
                for column, cost in zip(columns, found, strict=True):
                    best[column] = float(cost)
    return best


def _amounts(starts: Floats, ends: Floats, amounts: Floats) -> Callable[[Floats], Floats]:
    """How much there is up to a time, of amounts that come evenly between their starts and ends."""
    some = ends > starts
    if not some.any():
        return np.zeros_like
    starts, ends, amounts = starts[some], ends[some], amounts[some]
    rates = amounts / (ends - starts)
    times, changes = np.concatenate([starts, ends]), np.concatenate([rates, -rates])
    order = np.argsort(times)
    times, rate = times[order], np.cumsum(changes[order])
    sums = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(times))])
    return lambda at: np.interp(at, times, sums)


def _dropped(arm: Sequence[RolloutResult]) -> Iterator[tuple[float, float, int]]:
    """Generations that were not kept: the engine worked on them, too. How much of their time went into prompts is not
    known."""
    for result in arm:
        for span in result.speculation.spans if result.speculation is not None else ():
            if span.kind is SpanKind.GENERATE and span.fate is not Fate.KEPT and span.end_s is not None:
                yield span.start_s, span.end_s, span.tokens


def _row(made: _Generation) -> tuple[float, ...]:
    return made.new, made.tokens, made.sent_s, made.first_s, made.last_s


def _generations(trajectory: Trajectory) -> Iterator[_Generation]:
    for turn, gap in zip(trajectory.turns, gaps(trajectory), strict=False):
        timing, tokens = turn.completion.timing, len(turn.completion.token_ids)
        if timing is not None and tokens:
            yield _Generation(gap, tokens, timing.sent_s, timing.first_s, timing.last_s)


def gaps(trajectory: Trajectory) -> list[int]:
    """Tokens that were not sampled: before the first turn, and after each."""
    found: list[int] = []
    position = 0
    for turn in trajectory.turns:
        count = len(turn.completion.token_ids)
        start = trajectory.mask.index(1, position) if count else position
        found.append(start - position)
        position = start + count
    return [*found, len(trajectory.mask) - position]
