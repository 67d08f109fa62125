"""The figures of one simulated arm, in the words of the published tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from obsspec.rollout.collector import RolloutResult
from obsspec.sim.server import ServerCounts
from obsspec.values import Outcome

_TRIED = (Outcome.MATCH, Outcome.ROLLBACK, Outcome.CANCEL)


@dataclass(frozen=True, slots=True)
class RolloutFigures:
    """What is kept of one rollout. Seconds; `rates`: sum of the decode rates of its turns, `rated` of them."""

    number: int
    agent_s: float
    tool_s: float
    ended_s: float
    turns: int
    tokens: int
    rates: float
    rated: int
    outcomes: Counter[Outcome]
    prediction_s: tuple[float, ...]
    predicted: int  # attempts with a candidate
    branches: int
    depth: int
    discarded: int
    sent: int
    ran: int
    refused: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over rollouts, `_se` their standard errors as if rollouts were independent. `discarded` counts tokens of
    cancelled generations too, `discarded_completed` does not, as in the publication. `sent`, `ran`, `refused`: calls
    ahead of their turn, a rollout."""

    rollouts: int
    agent: tuple[float, ...]  # by rollout number
    agent_s: float
    agent_se: float
    agent_p99_s: float
    tool_s: float
    calls: float
    turn_tokens: float
    decode_rate: float
    match: float
    rollback: float
    cancel: float
    gated: int
    failed: int  # predictions that nothing came of: silent sources, and the engine too late by far
    attempts: int
    prediction_s: float
    realized_depth: float
    realized_breadth: float
    discarded: float
    discarded_completed: float
    sent: float
    ran: float
    refused: float
    batch_s: float
    rollouts_per_h: float
    ended_s: float  # when the last rollout was done
    in_flight: float  # sequences at the engine, on average while it works
    server: ServerCounts

    def reduction(self, sequential: Figures) -> tuple[float, float]:
        """1 - mean / mean on the same rollouts, and the standard error of that, from the differences of pairs."""
        before, after = np.array(sequential.agent), np.array(self.agent)
        value = 1 - after.mean() / before.mean()
        left = (1 - value) * before - after  # what a pair differs by from the common ratio
        return float(value), float(left.std(ddof=1) / math.sqrt(len(left)) / before.mean()) if len(left) > 1 else 0.0

    def hidden(self, sequential: Figures) -> float:
        """(sequential - this) / sum of tool latency, which only the sequential run sees whole."""
        return (sequential.agent_s - self.agent_s) / sequential.tool_s if sequential.tool_s else 0.0


def rollout_figures(result: RolloutResult, now_s: float) -> RolloutFigures:
    trajectory, report = result.trajectory, result.speculation
    rates = [
        (len(turn.completion.token_ids) - 1) / (timing.last_s - timing.first_s)
        for turn in trajectory.turns
        if (timing := turn.completion.timing) is not None and timing.last_s > timing.first_s
    ]
    attempts = report.attempts if report is not None else []
    return RolloutFigures(
        number=int(result.task_id),
        agent_s=trajectory.agent_s,
        tool_s=trajectory.tool_s,
        ended_s=now_s,
        turns=len(trajectory.turns),
        tokens=sum(len(turn.completion.token_ids) for turn in trajectory.turns),
        rates=sum(rates),
        rated=len(rates),
        outcomes=Counter(attempt.outcome for attempt in attempts),
        prediction_s=tuple(a.prediction_s for a in attempts if a.prediction_s is not None),
        predicted=sum(1 for attempt in attempts if attempt.branches),
        branches=sum(attempt.branches for attempt in attempts),
        depth=report.realized_depth if report is not None else 0,
        discarded=report.discarded_policy_tokens if report is not None else 0,
        sent=report.guarded_sent if report is not None else 0,
        ran=report.guarded_ran if report is not None else 0,
        refused=report.guarded_refused if report is not None else 0,
    )


def summarize(
    done: Sequence[RolloutFigures], batches: Sequence[float], concurrency: int, server: ServerCounts
) -> Figures:
    done = sorted(done, key=lambda figures: figures.number)
    agent = np.array([figures.agent_s for figures in done])
    outcomes = sum((figures.outcomes for figures in done), Counter[Outcome]())
    tried = sum(outcomes[outcome] for outcome in _TRIED)
    turns, tokens = sum(f.turns for f in done), sum(f.tokens for f in done)
    latencies = [s for figures in done for s in figures.prediction_s]
    predicted = sum(figures.predicted for figures in done)
    return Figures(
        rollouts=len(done),
        agent=tuple(float(s) for s in agent),
        agent_s=float(agent.mean()),
        agent_se=float(agent.std(ddof=1) / math.sqrt(len(agent))) if len(agent) > 1 else 0.0,
        agent_p99_s=float(np.percentile(agent, 99)),
        tool_s=sum(f.tool_s for f in done) / len(done),
        calls=turns / len(done) - 1,
        turn_tokens=tokens / turns,
        decode_rate=sum(f.rates for f in done) / max(1, sum(f.rated for f in done)),
        match=outcomes[Outcome.MATCH] / max(1, tried),
        rollback=outcomes[Outcome.ROLLBACK] / max(1, tried),
        cancel=outcomes[Outcome.CANCEL] / max(1, tried),
        gated=outcomes[Outcome.GATED],
        failed=outcomes[Outcome.FAILED],
        attempts=tried,
        prediction_s=sum(latencies) / max(1, len(latencies)),
        realized_depth=sum(f.depth for f in done) / len(done),
        realized_breadth=sum(f.branches for f in done) / max(1, predicted),
        discarded=sum(f.discarded for f in done) / len(done),
        discarded_completed=(server.tokens - tokens) / len(done),
        sent=sum(f.sent for f in done) / len(done),
        ran=sum(f.ran for f in done) / len(done),
        refused=sum(f.refused for f in done) / len(done),
        batch_s=sum(batches) / max(1, len(batches)),
        rollouts_per_h=_throughput([f.ended_s for f in done], concurrency),
        ended_s=max(f.ended_s for f in done),
        in_flight=server.sequence_s / server.busy_s if server.busy_s else 0.0,
        server=server,
    )


def _throughput(ended_s: Sequence[float], concurrency: int) -> float:
    """Rollouts an hour while `concurrency` are in flight: without the first and the last of them."""
    ordered = sorted(ended_s)[min(concurrency, len(ended_s) // 4) :]
    ordered = ordered[: max(2, len(ordered) - concurrency)]
    passed = ordered[-1] - ordered[0] if len(ordered) > 1 else 0.0
    return (len(ordered) - 1) / passed * 3600 if passed > 0 else 0.0
