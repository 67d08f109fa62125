"""What a run spends, and what becomes of the rollouts it pays for.

C_total = C_rollout + C_train + C_env, and usable = dispatched x completion x scoring x signal x freshness. A rollout is
lost at one stage, or used, so the factors multiply to the share that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from obsspec.rollout.attempts import Attempt, Drop, Seconds
from obsspec.rollout.collector import RolloutResult
from obsspec.values import StopReason

Reward = Callable[[RolloutResult], float | None]


def verified(result: RolloutResult) -> float | None:
    """What the verifier said."""
    return result.verdict.reward


def verified_if_finished(result: RolloutResult) -> float | None:
    """What the verifier said, but 0 where a limit ended the rollout and not the policy."""
    return result.verdict.reward if result.trajectory.stop == StopReason.FINAL else 0.0


class Stage(StrEnum):
    """Where rollouts get lost, in the order of the product."""

    COMPLETION = "completion"  # a part failed, or the rollout was cancelled
    SCORING = "scoring"  # the verifier failed
    SIGNAL = "signal"  # the whole group had the same reward: no advantage to learn from
    FRESHNESS = "freshness"  # the weights moved on before it was used


_LOST_AT = {
    Drop.ERROR: Stage.COMPLETION,
    Drop.CANCELLED: Stage.COMPLETION,
    Drop.UNSCORED: Stage.SCORING,
    Drop.STALE: Stage.FRESHNESS,
    Drop.MIXED_VERSIONS: Stage.FRESHNESS,
}
_REMEDY = {
    Stage.COMPLETION: "look at the errors of the failed rollouts",
    Stage.SCORING: "look at the errors of the verifier",
    Stage.SIGNAL: "choose tasks that the policy solves sometimes, or larger groups",
    Stage.FRESHNESS: "keep fewer rollouts in flight, or allow more staleness",
}


@dataclass(frozen=True, slots=True)
class Improvement:
    """The stage to improve first: where the rollouts that are lost have cost most seconds of policy and environment.

    `share`: of the seconds of all rollouts. A low factor is cheap where rollouts are lost early.
    """

    stage: Stage
    factor: float
    lost: int
    lost_s: float
    share: float

    def __str__(self) -> str:
        return (
            f"{self.stage} {self.factor:.2f}: {self.lost} rollouts lost there cost {self.lost_s:,.0f} s, "
            f"{self.share:.0%} of all; {_REMEDY[self.stage]}"
        )


@dataclass(slots=True)
class Account:
    """The books of a run, also over several collections. Seconds are summed over rollouts: two at a time count twice.

    `spent`: of all rollouts; `lost_s`: of those lost at a stage; `train_s`: as the trainer says; `wall_s`: while a
    collection was open.
    """

    dispatched: int = 0
    used: int = 0
    lost: dict[Stage, int] = field(default_factory=lambda: dict.fromkeys(Stage, 0))
    lost_s: dict[Stage, float] = field(default_factory=lambda: dict.fromkeys(Stage, 0.0))
    drops: dict[Drop, int] = field(default_factory=lambda: dict.fromkeys(Drop, 0))
    spent: Seconds = field(default_factory=Seconds)
    train_s: float = 0.0
    wall_s: float = 0.0

    def dropped(self, attempt: Attempt) -> None:
        """A dispatched attempt that is not used has ended."""
        assert attempt.drop is not None
        self.drops[attempt.drop] += 1
        self._lose(attempt, _LOST_AT[attempt.drop])

    def delivered(self, attempts: Sequence[Attempt], reward: Reward = verified) -> None:
        """What is left of a group is used, if its rewards differ; a group of one in any case."""
        usable = [attempt for attempt in attempts if attempt.drop is None]
        rewards = {reward(attempt.result) for attempt in usable}
        for attempt in usable:
            if len(attempts) > 1 and len(rewards) == 1:
                self._lose(attempt, Stage.SIGNAL)
            else:
                self._spend(attempt.seconds)
                self.used += 1

    @property
    def rollout_s(self) -> float:
        """C_rollout: turn loops waiting for the policy."""
        return self.spent.policy

    @property
    def env_s(self) -> float:
        """C_env: sandboxes set up, tools waited for, verifiers."""
        return self.spent.environment

    def factors(self) -> dict[Stage, float]:
        """Of the rollouts that reach a stage, the share that passes it. 1 where none has reached it."""
        left, found = self.used + sum(self.lost.values()), dict[Stage, float]()
        for stage in Stage:
            found[stage] = 1 - self.lost[stage] / left if left else 1.0
            left -= self.lost[stage]
        return found

    def improvement(self) -> Improvement | None:
        """None when nothing was lost."""
        stage = max(Stage, key=lambda stage: self.lost_s[stage])
        if not self.lost[stage]:
            return None
        total = self.spent.policy + self.spent.environment
        share = self.lost_s[stage] / total if total else 0.0
        return Improvement(stage, self.factors()[stage], self.lost[stage], self.lost_s[stage], share)

    def to_json(self) -> dict[str, Any]:
        """The books, with the figures that follow from them."""
        improvement = self.improvement()
        derived = {
            "C_rollout": self.rollout_s,
            "C_train": self.train_s,
            "C_env": self.env_s,
            "factors": self.factors(),
            "improve_first": str(improvement) if improvement else None,
        }
        return {"books": asdict(self), **derived}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Account:
        """The books that `to_json` wrote, to be gone on with; what was in flight then counts as cancelled.

        Raises `KeyError`.
        """
        books: dict[str, Any] = dict(content["books"])
        books["lost"] = {Stage(name): count for name, count in books["lost"].items()}
        books["lost_s"] = {Stage(name): seconds for name, seconds in books["lost_s"].items()}
        books["drops"] = {Drop(name): count for name, count in books["drops"].items()}
        books["spent"] = Seconds(**books["spent"])
        account = cls(**books)
        in_flight = account.dispatched - account.used - sum(account.lost.values())
        account.lost[Stage.COMPLETION] += in_flight
        account.drops[Drop.CANCELLED] += in_flight
        return account

    def _lose(self, attempt: Attempt, stage: Stage) -> None:
        self._spend(attempt.seconds)
        self.lost[stage] += 1
        self.lost_s[stage] += attempt.seconds.policy + attempt.seconds.environment

    def _spend(self, seconds: Seconds) -> None:
        self.spent = self.spent + seconds
