"""The pure rules of the agent loop: seeds, limits, and the way from one call to the next.

The loop and the session share one object, so what the session guesses is what the loop does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from obsspec.protocols import Followup, Renderer
from obsspec.values import Completion, ConfigError, GenerationKey, Observation, Sampling, StopReason, Turn


def turn_seed(rollout_seed: str, level: int) -> int:
    """The sampling seed of turn `level` (0-based): the first 31 bits of BLAKE2b("{rollout_seed}/{level}").

    A function of (rollout, turn) alone: a turn that is started again draws what it would have drawn before.
    """
    digest = blake2b(f"{rollout_seed}/{level}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_turns` committed turns; `max_turn_tokens` sampled tokens a turn; `max_context` tokens of prompt + turn."""

    max_turns: int = 32
    max_turn_tokens: int = 2048
    max_context: int = 18432

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_turn_tokens", "max_context"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class RolloutRules:
    """How one rollout goes on: a pure function of its prefix. `seed` identifies the rollout within its run."""

    renderer: Renderer
    limits: Limits
    seed: str
    temperature: float = 1.0
    top_p: float = 1.0
    model: str = ""

    def first(self, instruction: str) -> Followup:
        return self._call(self.renderer.start(instruction), 0)

    def parse(self, completion: Completion) -> Turn:
        return self.renderer.parse(completion)

    def follow(
        self, level: int, key: GenerationKey, completion: Completion, observations: Sequence[Observation]
    ) -> Followup:
        prompt = self.renderer.extend(key.prompt, completion.token_ids, observations)
        return self._call(prompt, level + 1)

    def speculable(self, level: int, turn: Turn) -> bool:
        return bool(turn.calls) and level + 1 < self.limits.max_turns

    def _call(self, prompt: tuple[int, ...], level: int) -> Followup:
        """A prompt that fills the context exactly is kept; there is just no room to sample on it."""
        room = self.limits.max_context - len(prompt)
        if level >= self.limits.max_turns:
            return Followup(prompt, None, StopReason.TURN_LIMIT)
        if room < 1:
            return Followup(prompt, None, StopReason.CONTEXT_LIMIT)
        sampling = Sampling(
            max_tokens=min(self.limits.max_turn_tokens, room),
            temperature=self.temperature,
            seed=turn_seed(self.seed, level),
            stop_token_ids=self.renderer.stop_token_ids,
            top_p=self.top_p,
            model=self.model,
        )
        return Followup(prompt, GenerationKey(prompt, sampling))
