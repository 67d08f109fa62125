"""What the world-model trainer can be asked for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from cyclopts import Parameter

from obsspec.train.checks import at_least, positive
from obsspec.train.precision import Precision
from obsspec.train.transitions import FilterRules


class Order(StrEnum):
    """STEP: every turn once, in the order of the policy's steps. MIXED: as much again of what was trained on before."""

    STEP = "step"
    MIXED = "mixed"


FREE = frozenset(("threads", "keep_every", "patience_s"))  # may change from one call to the next


def _help(text: str) -> Parameter:
    return Parameter(help=text)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class WorldSettings:
    order: Annotated[
        Order, _help("step: every turn once, in step order; mixed: with rollouts of before among them.")
    ] = Order.STEP
    round: Annotated[int, _help("Turns that make a round; after each round there is a checkpoint and a version.")] = 256
    patience_s: Annotated[float, _help("Seconds without news after which fewer turns make a round.")] = 20.0
    full: Annotated[
        bool, _help("Train every weight of the linear layers, not an adapter; a version is then a file of them all.")
    ] = False
    learning_rate: Annotated[float, _help("Of AdamW; with --full a tenth of it is more like it.")] = 1e-4
    batch_tokens: Annotated[int, _help("Tokens of a batch, about.")] = 1024
    clip: Annotated[float, _help("Largest norm of a gradient.")] = 1.0
    max_tokens: Annotated[int, _help("Turns with a longer history are left out.")] = 1024
    truncated: Annotated[bool, _help("Train on observations that were truncated.")] = False
    timed_out: Annotated[bool, _help("Train on what timed-out commands had printed.")] = False
    secret: Annotated[
        tuple[str, ...], _help("Regular expression; observations in which it is found are left out.")
    ] = ()
    threads: Annotated[int, _help("CPU threads.")] = 1
    precision: Annotated[Precision, _help("Type of the matrix products.")] = Precision.AUTO
    keep_every: Annotated[int, _help("Of the versions before the last two, every so many are kept.")] = 1
    seed: Annotated[int, _help("Of the replay.")] = 0

    def __post_init__(self) -> None:
        at_least(self, round=1, batch_tokens=1, max_tokens=1, threads=1, keep_every=1)
        positive(self, "patience_s", "learning_rate", "clip")
        _ = self.rules  # patterns that are none

    @property
    def rules(self) -> FilterRules:
        return FilterRules(
            truncated=self.truncated, timed_out=self.timed_out, secrets=self.secret, max_tokens=self.max_tokens
        )

    def as_config(self) -> dict[str, Any]:
        return asdict(self)
