"""The language world model: continues the policy's own token history with the text of the tool's answer.

Its prompt is the history plus the opening of a tool response, so a model that shares its weights with the policy
shares the prefix cache too. The first candidate is greedy; further ones are sampled at temperature 1.
"""

from __future__ import annotations

import math
from typing import cast

import anyio

from obsspec.protocols import Emit, Policy, Renderer
from obsspec.rollout.rules import turn_seed
from obsspec.values import Context, FinishReason, Observation, Prediction, PredictionCutError, Priority, Sampling


class LanguageWorldModel:
    """`max_tokens`: a longer prediction is cut off, counted in `cut_off`, and is no candidate.

    `max_context`: tokens of prompt and prediction together; what does not fit is not predicted.

    Cancelling `predict` cancels its generations at the engine. Errors of the engine: `EngineError`.
    """

    def __init__(
        self, engine: Policy, renderer: Renderer, *, max_tokens: int = 128, max_context: int = 18432, model: str = ""
    ) -> None:
        self._engine = engine
        self._renderer = renderer
        self._max_tokens = max_tokens
        self._max_context = max_context
        self._model = model
        self.cut_off = 0

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        """The greedy candidate and `breadth - 1` samples, at once. Confidence: the probability of their tokens.

        The first error of the engine ends them all; candidates already emitted stand. Raises `PredictionCutError`
        when all that was written had to be cut off.
        """
        found: list[Prediction] = []
        cut: list[int] = []

        async def one(index: int) -> None:
            prediction = await self._candidate(context, index, cut)
            if prediction is not None:
                found.append(prediction)
                emit(prediction)

        try:
            async with anyio.create_task_group() as tasks:
                for index in range(breadth):
                    tasks.start_soon(one, index)
        except ExceptionGroup as group:
            raise _first(group) from None  # pyright: ignore[reportUnknownArgumentType]
        self.cut_off += len(cut)
        if cut and not found:
            raise PredictionCutError(f"cut off at {self._max_tokens} tokens")

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Learns between rollouts, from the transition log, not from single outcomes."""

    async def _candidate(self, context: Context, index: int, cut: list[int]) -> Prediction | None:
        observations: list[Observation] = []
        log_probability = 0.0
        version = ""
        for _ in context.calls:
            prompt = self._renderer.open_observation(context.prompt, context.completion, observations)
            room = self._max_context - len(prompt)
            if room < 1:
                return None
            sampling = self._sampling(context, index, min(self._max_tokens, room))
            completion = await self._engine.generate(prompt, sampling, priority=Priority.SPECULATIVE)
            text = self._renderer.read_observation(completion.token_ids)
            if text is None:
                if completion.finish_reason is FinishReason.LENGTH:
                    cut.append(index)
                return None
            observations.append(Observation(text))
            log_probability += sum(completion.logprobs)
            version = completion.weight_version
        return Prediction(tuple(observations), "lm", math.exp(min(0.0, log_probability)), version)

    def _sampling(self, context: Context, index: int, max_tokens: int) -> Sampling:
        return Sampling(
            max_tokens=max_tokens,
            temperature=0.0 if index == 0 else 1.0,
            seed=turn_seed(f"world/{index}", len(context.prompt)),
            stop_token_ids=self._renderer.observation_stop_ids,
            model=self._model,
        )


def _first(error: Exception) -> Exception:
    """The first error in a group that is not itself a group."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error
