"""What one rollout leaves behind: tokens for training, turns for reading, times for measuring."""

from __future__ import annotations

from dataclasses import dataclass, field

from obsspec.values import Completion, Observation, StopReason, Tokens, ToolCall


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One committed turn. Times are seconds on the loop's clock; the tool times are empty without a tool call."""

    level: int
    completion: Completion
    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]
    generate_start_s: float
    generate_end_s: float
    tool_start_s: tuple[float, ...] = ()
    tool_end_s: tuple[float, ...] = ()
    error: str = ""  # the malformed call, as told to the policy

    @property
    def tool_s(self) -> float:
        return sum(end - start for start, end in zip(self.tool_start_s, self.tool_end_s, strict=True))


@dataclass(slots=True)
class Trajectory:
    """Token ids of the whole rollout; `mask` 1 where the policy sampled; `logprobs` 0.0 where it did not.

    Appended turn by turn, so that a rollout that ends in an error keeps its last contiguous prefix.
    """

    instruction: str
    ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    versions: list[str] = field(default_factory=list[str])  # one per turn, of the weights that sampled it
    turns: list[TurnRecord] = field(default_factory=list[TurnRecord])
    stop: StopReason = StopReason.CANCELLED
    answer: str | None = None
    error: str = ""
    start_s: float = 0.0
    end_s: float = 0.0

    @property
    def agent_s(self) -> float:
        """Agent latency: wall clock of the turn loop, after set-up and before the verifier."""
        return self.end_s - self.start_s

    @property
    def tool_s(self) -> float:
        return sum(turn.tool_s for turn in self.turns)

    def append_prompt(self, ids: Tokens) -> None:
        self.ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def append_turn(self, completion: Completion) -> None:
        self.ids += completion.token_ids
        self.mask += [1] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        self.versions.append(completion.weight_version)

    def append_suffix(self, prompt: Tokens, max_context: int) -> None:
        """What `prompt` adds to the ids so far; an observation that does not fit the context is not added."""
        if len(prompt) <= max_context:
            self.append_prompt(prompt[len(self.ids) :])
