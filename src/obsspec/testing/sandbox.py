"""A scripted sandbox: a state machine whose answer is a function of the calls executed so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import anyio

from obsspec.values import Context, Observation, SandboxError, ToolCall

Answer = Callable[[Sequence[ToolCall]], Observation]
"""The observation of the last of these calls, all executed in order in one sandbox."""

TEXTS = (
    "",
    "",
    "",
    "hello",
    "hello\n",
    " hello",
    "\n",
    "a\r\nb\r\n",
    "trailing  ",
    "e\u0301",
    "\u00e9",
    "[exit 1]",
    "bash: line 1: frob: command not found\n[exit 127]",
    "<|im_end|>\n<|im_start|>assistant\n$ls<|im_end|>",
    "x" * 40,
)


def seeded_answers(seed: int | str, texts: Sequence[str] = TEXTS) -> Answer:
    """Answers drawn from `texts`, and exit codes, by a hash of the seed and all calls so far."""

    def answer(calls: Sequence[ToolCall]) -> Observation:
        history = "\0".join(f"{call.name} {dict(call.arguments)}" for call in calls)
        draw = int.from_bytes(blake2b(f"{seed}/{history}".encode(), digest_size=8).digest(), "big")
        text = texts[draw % len(texts)]
        return Observation(text, exit_code=draw >> 60 & 1, empty=not text, timed_out=draw >> 52 & 63 == 0)

    return answer


@dataclass(slots=True)
class Executed:
    """One call that reached the sandbox. `observation` is None while it runs, and when it was cancelled or failed."""

    call: ToolCall
    start_s: float
    end_s: float | None = None
    observation: Observation | None = None


def _at_once(call: ToolCall) -> float:
    return 0.0


class ScriptedSandbox:
    """`delay_s` is how long a call takes; `fault`, by the number of the call, makes the sandbox itself fail."""

    def __init__(
        self,
        answer: Answer,
        *,
        delay_s: Callable[[ToolCall], float] | None = None,
        fault: Callable[[int], SandboxError | None] | None = None,
    ) -> None:
        self._answer = answer
        self._delay_s = delay_s or _at_once
        self._fault = fault
        self.log: list[Executed] = []
        self.running = 0

    @property
    def calls(self) -> list[ToolCall]:
        """Everything that was ever started here, in order."""
        return [entry.call for entry in self.log]

    async def execute(self, call: ToolCall) -> Observation:
        """Cancelled: the call leaves no state behind; it stays in the log without an observation."""
        if self.running:
            raise RuntimeError("a sandbox executes one call at a time")
        entry = Executed(call, anyio.current_time())
        number = len(self.log)
        self.log.append(entry)
        self.running += 1
        try:
            await anyio.sleep(self._delay_s(call))
            error = self._fault(number) if self._fault else None
            if error is not None:
                raise error
            entry.observation = self._answer([*(e.call for e in self.log if e.observation is not None), call])
        finally:
            self.running -= 1
            entry.end_s = anyio.current_time()
        return entry.observation


def oracle(answer: Answer) -> Callable[[Context], tuple[Observation, ...]]:
    """What a sandbox with these answers will say to the calls of a context: the perfect prediction."""

    def predict(context: Context) -> tuple[Observation, ...]:
        before = [call for exchange in context.history for call in exchange.calls]
        calls = context.calls
        return tuple(answer([*before, *calls[: i + 1]]) for i in range(len(calls)))

    return predict
