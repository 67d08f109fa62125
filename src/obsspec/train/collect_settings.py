"""What a collection of rollouts without training can be asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from obsspec.tasks.task import Difficulty
from obsspec.train.checks import at_least
from obsspec.train.rollout_settings import Flow


def _help(text: str) -> Parameter:
    return Parameter(help=text)


FREE = frozenset(("tasks", "sandboxes", "max_staleness", "retries"))  # may change from one call to the next


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class CollectSettings:
    tasks: Annotated[int, _help("Tasks of the training split; a finished collection goes on with more.")] = 100
    group: Annotated[int, _help("Rollouts of each task.")] = 1
    families: Annotated[str, _help("Task families, comma-separated; 'all' for every one.")] = "all"
    difficulty: Annotated[Difficulty, _help("Difficulty of the tasks.")] = Difficulty.EASY
    task_seed: Annotated[int, _help("Which tasks; another seed, other tasks.")] = 0
    seed: Annotated[int, _help("Of the sampling.")] = 0
    sandboxes: Annotated[
        int, _help("Sandboxes open at a time, those set up and verified included; 0: twice --concurrency.")
    ] = 0
    max_staleness: Annotated[
        int | None, _help("Of a folder of versions: drop rollouts whose oldest turn is more updates old.")
    ] = None
    strict_version: Annotated[bool, _help("Drop rollouts that several versions sampled.")] = False
    retries: Annotated[int, _help("How often a dropped rollout is made again.")] = 0

    def __post_init__(self) -> None:
        at_least(self, tasks=1, group=1, sandboxes=0, retries=0, max_staleness=0)

    @property
    def flow(self) -> Flow:
        return Flow(self.sandboxes or None, self.max_staleness, self.strict_version, self.retries)

    def as_config(self) -> dict[str, Any]:
        return asdict(self)
