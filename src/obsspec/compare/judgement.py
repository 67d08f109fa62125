"""Whether a comparison shows what it claims: identical pairs, or, where an engine is not exact, equal distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from obsspec.compare.distribution import FEWEST, p_values, same_distribution
from obsspec.compare.summary import Pair


@dataclass(frozen=True, slots=True)
class Judgement:
    good: bool
    line: str
    figures: dict[str, Any]


def judge(pairs: Sequence[Pair], *, exact: bool) -> Judgement:
    """`exact`: the engine is bit-exact, so that every pair must be identical.

    A rollout that ended because a part failed shows nothing, whatever it is compared with: it is never good.
    """
    different = [pair for pair in pairs if pair.differences]
    identical = f"identical rollouts {len(pairs) - len(different)}/{len(pairs)}"
    p = p_values(pairs)
    figures = {"distribution_p": p}
    errors = [r for pair in pairs for r in (pair.sequential, pair.speculative) if r.trajectory.stop.is_error]
    if errors:
        first = errors[0].trajectory
        why = f"{len(errors)} rollouts ended by an error, the first: {first.stop}: {first.error}"
        return Judgement(False, f"{identical}; {why}; the same command makes them again", figures)
    if not different:
        return Judgement(True, identical, figures)
    if exact:
        named = ", ".join(f"{pair.sequential.task_id} ({', '.join(pair.differences)})" for pair in different)
        return Judgement(False, f"{identical}; different: {named}", figures)
    tests = ", ".join(f"{name} p={value:.3g}" for name, value in p.items())
    line = f"{identical} (not demanded of this engine); same distribution in both arms: {tests}"
    if len(different) < FEWEST:
        line += f"; too few different pairs ({len(different)} < {FEWEST}) to tell distributions apart"
    return Judgement(same_distribution(p), line, figures)
