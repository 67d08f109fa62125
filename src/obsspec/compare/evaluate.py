"""How good the models are, apart from any timing: reward of the policy, exact match of the world model.

Rollouts are sequential, in local sandboxes; every observation is then predicted from the history it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import anyio

from obsspec.compare.outcomes import TRIVIAL_TEXT, program
from obsspec.compare.statistics import mean, share
from obsspec.protocols import Renderer, WorldModel
from obsspec.rollout.collector import RolloutResult
from obsspec.values import Context, Exchange, Observation, Prediction, PredictionCutError


@dataclass(frozen=True, slots=True)
class Predicted:
    """One tool call of a rollout, and whether the world model's best candidate was exactly its observation."""

    task_id: str
    program: str
    matched: bool
    trivial: bool
    confidence: float
    latency_s: float


def contexts(result: RolloutResult, renderer: Renderer) -> Iterator[tuple[Context, tuple[Observation, ...]]]:
    """What a world model would have known at each turn with a tool call, and what the tools then answered."""
    prompt = renderer.start(result.trajectory.instruction)
    history: list[Exchange] = []
    for turn in result.trajectory.turns:
        ids = turn.completion.token_ids
        if turn.calls:
            yield Context(prompt, ids, turn.calls, tuple(history), result.task_id), turn.observations
            history.append(Exchange(turn.calls, turn.observations))
        prompt = renderer.extend(prompt, ids, turn.observations)


async def predict_all(result: RolloutResult, renderer: Renderer, world_model: WorldModel) -> list[Predicted]:
    """The world model's best candidate for every tool call of one rollout, judged."""
    found: list[Predicted] = []
    for context, observations in contexts(result, renderer):
        candidates: list[Prediction] = []
        start = anyio.current_time()
        with suppress(PredictionCutError):
            await world_model.predict(context, 1, candidates.append)
        latency = anyio.current_time() - start
        texts = [observation.text for observation in observations]
        best = candidates[-1] if candidates else None
        found.append(
            Predicted(
                result.task_id,
                program(context.calls[0].command),
                best is not None and [o.text for o in best.observations] == texts,
                all(text == TRIVIAL_TEXT for text in texts),
                best.confidence if best else 0.0,
                latency,
            )
        )
    return found


def quality(results: list[RolloutResult], predicted: list[Predicted]) -> dict[str, Any]:
    """Shares in 0..1. `match_trivial`: what always guessing "no output" would match."""
    families = sorted({result.task_id.split("-")[0] for result in results})
    programs = sorted({p.program for p in predicted})
    tasks = sorted({p.task_id for p in predicted})
    return {
        "tasks": len(results),
        "reward": mean([result.verdict.reward for result in results]),
        **_matches(predicted),
        "prediction_p50_s": median([p.latency_s for p in predicted]) if predicted else float("nan"),
        "reward_per_family": {
            family: mean([r.verdict.reward for r in results if r.task_id.split("-")[0] == family])
            for family in families
        },
        "match_per_command": {name: _matches([p for p in predicted if p.program == name]) for name in programs},
        "match_per_task": {name: _matches([p for p in predicted if p.task_id == name]) for name in tasks},
    }


def _matches(predicted: list[Predicted]) -> dict[str, Any]:
    telling = [p for p in predicted if not p.trivial]
    return {
        "predictions": len(predicted),
        "match": share(sum(p.matched for p in predicted), len(predicted)),
        "match_nonempty": share(sum(p.matched for p in telling), len(telling)),
        "match_trivial": share(sum(p.trivial for p in predicted), len(predicted)),
    }
