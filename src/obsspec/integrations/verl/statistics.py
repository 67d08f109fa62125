"""What one rollout's speculation did, as plain numbers in the output's extra fields, and what a step's rollouts did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from obsspec.speculation.trace import Fate, Span, SpanKind, SpeculationReport
from obsspec.values import Outcome

FIELD = "obsspec"  # the key in the extra fields
_DEPTH = "realized_depth"


def statistics(report: SpeculationReport) -> dict[str, float]:
    """One number per name. `discarded_tokens` counts the branches that ended; a server tells nothing of a request that
    is cancelled midway, so of those there are the number and the seconds."""
    outcomes = Counter(attempt.outcome for attempt in report.attempts)
    dropped = [span for span in report.spans if _is_dropped(span)]
    return {
        **{outcome.value: float(outcomes[outcome]) for outcome in Outcome},
        "branches": float(sum(attempt.branches for attempt in report.attempts)),
        "discarded_tokens": float(report.discarded_policy_tokens),
        "discarded_midway": float(sum(span.tokens == 0 for span in dropped)),
        "discarded_s": sum((span.end_s or span.start_s) - span.start_s for span in dropped),
        _DEPTH: float(report.realized_depth),
        "guarded_sent": float(report.guarded_sent),
        "guarded_ran": float(report.guarded_ran),
    }


def summary(rollouts: Iterable[Mapping[str, float] | None]) -> dict[str, float]:
    """Of a step: the sum of each number over its rollouts, the deepest depth, the share of attempts that matched."""
    totals: dict[str, float] = {}
    deepest = 0.0
    for rollout in rollouts:
        for name, value in (rollout or {}).items():
            totals[name] = totals.get(name, 0.0) + value
        deepest = max(deepest, (rollout or {}).get(_DEPTH, 0.0))
    if not totals:
        return {}
    attempts = sum(totals[outcome.value] for outcome in (Outcome.MATCH, Outcome.ROLLBACK, Outcome.CANCEL))
    totals |= {_DEPTH: deepest, "match_share": totals[Outcome.MATCH.value] / attempts if attempts else 0.0}
    return {f"{FIELD}/{name}": value for name, value in totals.items()}


def _is_dropped(span: Span) -> bool:
    return span.kind is SpanKind.GENERATE and span.speculative and span.fate is not Fate.KEPT
