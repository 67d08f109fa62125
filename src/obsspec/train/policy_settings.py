"""What policy training can be asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from cyclopts import Parameter

from obsspec.tasks.task import Difficulty
from obsspec.train.checks import at_least, positive
from obsspec.train.precision import Precision
from obsspec.values import ConfigError


def _help(text: str) -> Parameter:
    return Parameter(help=text)


class Loss(StrEnum):
    """How a batch is averaged. Where failures are long, `token` mostly makes what was sampled less likely."""

    ROLLOUT = "rollout"
    TOKEN = "token"


class Schedule(StrEnum):
    """What becomes of the learning rate over the steps."""

    CONSTANT = "constant"
    LINEAR = "linear"
    DECAY = "decay"


FREE = frozenset(("train_threads", "keep_every"))  # may change from one call to the next
DECAYING = 0.3  # of the steps, with Schedule.DECAY


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class PolicySettings:
    steps: Annotated[int, _help("Steps in all; a finished run goes on with more if --schedule is constant.")] = 50
    prompts: Annotated[int, _help("Tasks of a step.")] = 8
    group: Annotated[int, _help("Rollouts of each task.")] = 8
    tasks: Annotated[int, _help("Tasks of the training split to draw from.")] = 1000
    families: Annotated[str, _help("Task families, comma-separated; 'all' for every one.")] = "all"
    difficulty: Annotated[Difficulty, _help("Difficulty of the tasks.")] = Difficulty.EASY
    task_seed: Annotated[int, _help("Which tasks; another seed, other tasks.")] = 0
    learning_rate: Annotated[float, _help("Of AdamW, at the first step.")] = 5e-5
    schedule: Annotated[
        Schedule,
        _help("constant; linear: the learning rate falls to 0 at --steps; decay: it does so in the last 30 % of them."),
    ] = Schedule.CONSTANT
    loss: Annotated[Loss, _help("rollout: each rollout weighs the same; token: each token, so long ones more.")] = (
        Loss.ROLLOUT
    )
    reward_unfinished: Annotated[
        bool,
        _help("Let rollouts that ran into a limit keep their reward; else it is 0, or nothing tells a policy to end."),
    ] = False
    epsilon_high: Annotated[float, _help("Upper clip of the importance ratio; the lower one is 0.2.")] = 0.28
    clip: Annotated[float, _help("Largest norm of a gradient.")] = 1.0
    micro_batch: Annotated[int, _help("Rollouts in one pass of the model.")] = 8
    keep_every: Annotated[int, _help("Of the adapters before the last two, every so many are kept.")] = 5
    train_threads: Annotated[int, _help("CPU threads of the update; 0: all cores.")] = 0
    precision: Annotated[Precision, _help("Type of the matrix products of the update.")] = Precision.AUTO
    seed: Annotated[int, _help("Of the sampling and of the order of the tasks.")] = 0

    def __post_init__(self) -> None:
        at_least(self, steps=1, prompts=1, tasks=1, micro_batch=1, keep_every=1, train_threads=0)
        positive(self, "learning_rate", "epsilon_high", "clip")
        if self.group < 2:
            raise ConfigError(f"--group must be at least 2, got {self.group}: GRPO compares rollouts of a task")
        if self.prompts * self.group % self.micro_batch:
            raise ConfigError(f"--micro-batch must divide prompts x group = {self.prompts * self.group}")

    def as_config(self) -> dict[str, Any]:
        """What a run folder must agree on to be resumed. The number of steps may grow where nothing depends on it."""
        loose = {"steps", "schedule"} if self.schedule == Schedule.CONSTANT else set[str]()
        if self.reward_unfinished:
            loose.add("reward_unfinished")  # as in folders that do not say
        return {name: value for name, value in asdict(self).items() if name not in loose}
