"""One pipeline on one episode: its parts and what it made."""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.rollout.collector import RolloutResult
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.policy import ScriptedPolicy
from obsspec.testing.world_model import ScriptedWorldModel


@dataclass(slots=True)
class Arm:
    """The parts of one pipeline and what it made; a cancelled one made nothing."""

    policy: ScriptedPolicy
    environments: list[ScriptedEnvironment]
    world_model: ScriptedWorldModel | None = None
    results: list[RolloutResult] = field(default_factory=list[RolloutResult])

    @property
    def executed(self) -> list[list[tuple[str, str | None]]]:
        """Commands and observations that each sandbox saw, in order."""
        return [
            [(entry.call.command, entry.observation.text if entry.observation else None) for entry in sandbox.log]
            for environment in self.environments
            for sandbox in environment.sandboxes
        ]
