"""One pipeline on one episode: its parts and what it made."""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.rollout.collector import RolloutResult, Shared, WorldModels
from obsspec.speculation.expected_value import ExpectedValueGate
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.gates import RandomGate
from obsspec.testing.policy import ScriptedPolicy
from obsspec.testing.world_model import ScriptedWorldModel


@dataclass(slots=True)
class Arm:
    """The parts of one pipeline and what it made; a cancelled one made nothing."""

    policy: ScriptedPolicy
    environments: list[ScriptedEnvironment]
    world_models: list[ScriptedWorldModel] = field(default_factory=list[ScriptedWorldModel])  # stages, if several
    opener: WorldModels | None = None  # of a cascade; None: the first world model as it is
    gate: Gate = field(default_factory=OpenGate)
    results: list[RolloutResult] = field(default_factory=list[RolloutResult])

    @property
    def models(self) -> WorldModels:
        return self.opener or Shared(self.world_models[0])

    @property
    def believed_running(self) -> int:
        """Generations that the gate was told of and has not seen end."""
        if isinstance(self.gate, RandomGate):
            return len(self.gate.running)
        return self.gate.load.in_flight if isinstance(self.gate, ExpectedValueGate) else 0

    @property
    def executed(self) -> list[list[tuple[str, str | None]]]:
        """Commands and observations that each sandbox saw, in order."""
        return [
            [(entry.call.command, entry.observation.text if entry.observation else None) for entry in sandbox.log]
            for environment in self.environments
            for sandbox in environment.sandboxes
        ]
