"""What is not deterministic in a trajectory, and why: its commands run twice in fresh sandboxes, and compared.

The share of commands that print the same both times is the determinism ceiling: no world model can be right more often
without luck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import anyio

from obsspec.protocols import Sandbox
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import Observation, ToolCall
from obsspec.worldeval.causes import Cause, cause_of

APART_S = 1.1  # so that clocks which show seconds differ


class Opener(Protocol):
    """Opens fresh sandboxes, local or remote."""

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]: ...


@dataclass(frozen=True, slots=True)
class Probed:
    """One command and what it printed, time after time. `cause` None: the same each time."""

    command: str
    outputs: tuple[Observation, ...]
    cause: Cause | None

    @property
    def equal(self) -> bool:
        return self.cause is None


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The commands of one trajectory, in order."""

    commands: tuple[Probed, ...]

    @property
    def ceiling(self) -> float:
        """Share of commands that printed the same each time; 1 where there are none."""
        return sum(probed.equal for probed in self.commands) / len(self.commands) if self.commands else 1.0

    @property
    def causes(self) -> Mapping[Cause, int]:
        """How many commands differed for each cause, most frequent first."""
        return dict(Counter(probed.cause for probed in self.commands if probed.cause is not None).most_common())


async def probe(spec: SandboxSpec, calls: Sequence[ToolCall], sandboxes: Opener, *, times: int = 2) -> ProbeReport:
    """Run `calls` in `times` fresh sandboxes, one after the other, and compare. Raises `SandboxError`, `ConfigError`.

    The runs begin at different seconds. A command may also differ because an earlier one left something different.
    """
    runs: list[list[Observation]] = []
    for number in range(times):
        began = anyio.current_time()
        async with sandboxes.open(spec) as sandbox:
            runs.append([await sandbox.execute(call) for call in calls])
        if number + 1 < times:
            await anyio.sleep(max(0.0, APART_S - (anyio.current_time() - began)))
    return ProbeReport(
        tuple(_compare(call, outputs) for call, outputs in zip(calls, zip(*runs, strict=True), strict=True))
    )


def _compare(call: ToolCall, outputs: tuple[Observation, ...]) -> Probed:
    first, command = outputs[0].text, call.command
    causes = (cause_of(command, first, other.text) for other in outputs[1:] if other.text != first)
    return Probed(command, outputs, next(causes, None))
