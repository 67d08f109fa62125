"""Every figure of a comparison, computed from the rollouts in its run folder and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from obsspec.compare.ideal import hidden_ideal
from obsspec.compare.outcomes import ATTEMPTED, by_command, by_source, outcome_shares, settled_turns
from obsspec.compare.statistics import Estimate, mean, mean_estimate, reduction_estimate
from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.equality import differences
from obsspec.values import Completion, PredictionCutError, StopReason


@dataclass(frozen=True, slots=True)
class Pair:
    """One task and seed through both arms, and through the third one if the run has it: without calls sent ahead."""

    sequential: RolloutResult
    speculative: RolloutResult
    observation: RolloutResult | None = None

    @property
    def differences(self) -> list[str]:
        return differences(self.sequential, self.speculative)


def observation_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The sequential arm and observation speculation alone, where both were run."""
    return [Pair(pair.sequential, pair.observation) for pair in pairs if pair.observation is not None]


def decode_rate(results: Sequence[RolloutResult]) -> float:
    """Tokens per second of one request: mean over kept generations of (tokens - 1) / (last - first token time)."""
    completions = [turn.completion for result in results for turn in result.trajectory.turns]
    return mean([rate for completion in completions if (rate := _rate(completion)) is not None])


def _rate(completion: Completion) -> float | None:
    timing, tokens = completion.timing, len(completion.token_ids)
    if timing is None or tokens < 2 or timing.last_s <= timing.first_s:
        return None
    return (tokens - 1) / (timing.last_s - timing.first_s)


def task_latencies(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    """Mean agent latency of each task in both arms: rollouts of one task are not independent samples."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.sequential.task_id, []).append(pair)
    return (
        [mean([pair.sequential.trajectory.agent_s for pair in group]) for group in groups.values()],
        [mean([pair.speculative.trajectory.agent_s for pair in group]) for group in groups.values()],
    )


def hidden_tool_time(pairs: Sequence[Pair]) -> float:
    """(sequential - speculative agent latency) / tool latency of the sequential arm, summed over pairs."""
    tool_s = sum(pair.sequential.trajectory.tool_s for pair in pairs)
    saved = sum(pair.sequential.trajectory.agent_s - pair.speculative.trajectory.agent_s for pair in pairs)
    return saved / tool_s if tool_s else float("nan")


def summarize(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The content of `summary.json`: seconds, shares in 0..1, counts; `per_command` holds the outcomes by program.

    `observation_only` holds the same figures of the arm without calls sent ahead, if it was run.
    """
    alone = observation_pairs(pairs)
    return {**_figures(pairs), **({"observation_only": _figures(alone)} if alone else {})}


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    a = [pair.sequential for pair in pairs]
    b = [pair.speculative for pair in pairs]
    latency_a, latency_b = task_latencies(pairs)
    turns = settled_turns(b)
    shares = outcome_shares(turns)
    quick = [t.attempted for t in turns if t.attempted.source != "lm"]
    cheap = [attempted.prediction_s for attempted in quick if attempted.prediction_s is not None]
    reports = [result.speculation for result in b if result.speculation is not None]
    ahead = [report.guarded_sent for report in reports]
    reduction = reduction_estimate(latency_a, latency_b)
    return {
        "pairs": len(pairs),
        "identical": sum(not pair.differences for pair in pairs),
        "errors": sum(result.trajectory.stop.is_error for result in (*a, *b)),
        "reward_sequential": mean([result.verdict.reward for result in a]),
        "reward_speculative": mean([result.verdict.reward for result in b]),
        **_interval("agent_s_sequential", mean_estimate(latency_a)),
        **_interval("agent_s_speculative", mean_estimate(latency_b)),
        "reduction": reduction.value,
        "reduction_ci": [reduction.low, reduction.high],
        "hidden_tool_time": hidden_tool_time(pairs),
        "hidden_ideal": hidden_ideal([result.trajectory for result in a], guarded=any(ahead)),
        "tool_s_per_rollout": mean([result.trajectory.tool_s for result in a]),
        "tool_calls_per_rollout": mean([len([c for t in r.trajectory.turns for c in t.calls]) for r in a]),
        "turns_with_a_call": shares.turns,
        "attempts": shares.attempts,
        "match": shares.match,
        "rollback": shares.rollback,
        "cancel": shares.cancel,
        "gated": shares.gated,
        "failed": shares.failed,
        "cut_off": sum(t.attempted.detail.startswith(PredictionCutError.__name__) for t in turns),
        "match_nonempty": shares.match_nonempty,
        "match_trivial": shares.match_trivial,
        "realized_depth": mean([report.realized_depth for report in reports]),
        "realized_breadth": mean([t.attempted.branches for t in turns if t.attempted.outcome in ATTEMPTED]),
        "decode_rate_sequential": decode_rate(a),
        "decode_rate_speculative": decode_rate(b),
        "prediction_p50_s": shares.prediction_p50_s,
        "prediction_p50_cheap_s": median(cheap) if cheap else float("nan"),
        "would_match": shares.would_match,
        "discarded_policy_tokens": mean([report.discarded_policy_tokens for report in reports]),
        "guarded_sent": sum(ahead),
        "guarded_ran": sum(report.guarded_ran for report in reports),
        "guarded_refused": sum(report.guarded_refused for report in reports),
        "stops": {
            "sequential": _stops(a),
            "speculative": _stops(b),
        },
        "per_source": {name: _shares(value) for name, value in by_source(turns).items()},
        "per_command": {name: _shares(value) for name, value in by_command(turns).items()},
        "different_pairs": [
            {"task_id": pair.sequential.task_id, "seed": pair.sequential.seed, "fields": pair.differences}
            for pair in pairs
            if pair.differences
        ],
    }


def _interval(name: str, estimate: Estimate) -> dict[str, Any]:
    return {name: estimate.value, f"{name}_ci": [estimate.low, estimate.high]}


def _stops(results: Sequence[RolloutResult]) -> dict[str, int]:
    reasons = [result.trajectory.stop for result in results]
    return {reason.value: reasons.count(reason) for reason in StopReason if reason in reasons}


def _shares(shares: Any) -> dict[str, Any]:
    return {name: getattr(shares, name) for name in shares.__slots__}
