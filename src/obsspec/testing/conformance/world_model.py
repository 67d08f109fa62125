"""What every `WorldModel` must do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import anyio
import anyio.lowlevel

from obsspec.protocols import WorldModel
from obsspec.testing.conformance.promise import OpenProbe, cancelled_after, nothing_open, require
from obsspec.values import Context, Prediction

WorldModelFactory = Callable[[], AbstractAsyncContextManager[WorldModel]]


async def check_world_model(
    factory: WorldModelFactory,
    *,
    contexts: Sequence[Context],
    breadth: int = 3,
    open_requests: OpenProbe | None = None,
    exact: bool = True,
    patience_s: float = 10.0,
) -> None:
    """Raises `BrokenPromiseError` for the first promise that is not kept.

    `contexts`: of turns with one call, and with several. `exact` False: equal questions need not get equal answers.
    """
    async with factory() as world_model:
        alone = [await _ask(world_model, context, breadth) for context in contexts]
        for context in contexts:
            await _ask(world_model, context, 1)
        await _cancels(world_model, contexts, breadth, open_requests, patience_s)
        together = await _ask_all(world_model, contexts, breadth)
        if exact:
            require(together == alone, "equal questions get equal answers, alone or not")
        for context, predictions in zip(contexts, alone, strict=True):
            for prediction in predictions:
                world_model.learn(context, prediction.observations)
        await _ask_all(world_model, contexts, breadth)
        await nothing_open(open_requests, patience_s)


async def _ask(world_model: WorldModel, context: Context, breadth: int) -> list[Prediction]:
    emitted: list[Prediction] = []
    returned = False

    def emit(prediction: Prediction) -> None:
        require(not returned, "nothing is emitted after `predict` returned")
        emitted.append(prediction)

    await world_model.predict(context, breadth, emit)
    returned = True
    await anyio.lowlevel.checkpoint()
    replaced = any(prediction.tentative for prediction in emitted[:-1])
    require(len(emitted) <= breadth + replaced, "there are at most `breadth` candidates, and one that was replaced")
    for prediction in emitted:
        require(len(prediction.observations) == len(context.calls), "there is one observation for each call")
        require(0.0 <= prediction.confidence <= 1.0, "a confidence is a probability")
        require(bool(prediction.source), "a prediction names its source")
    return sorted(emitted, key=repr)  # in which order they arrive is no promise


async def _ask_all(world_model: WorldModel, contexts: Sequence[Context], breadth: int) -> list[list[Prediction]]:
    answers: dict[int, list[Prediction]] = {}

    async def one(index: int, context: Context) -> None:
        answers[index] = await _ask(world_model, context, breadth)

    async with anyio.create_task_group() as tasks:
        for index, context in enumerate(contexts):
            tasks.start_soon(one, index, context)
    return [answers[index] for index in range(len(contexts))]


async def _cancels(
    world_model: WorldModel, contexts: Sequence[Context], breadth: int, probe: OpenProbe | None, patience_s: float
) -> None:
    for after_s in (0.0, 0.02):
        cancelled = False

        def emit(prediction: Prediction) -> None:
            require(not cancelled, "nothing is emitted after a cancellation")  # noqa: B023 - of this round

        await cancelled_after(lambda: world_model.predict(contexts[0], breadth, emit), after_s, patience_s)
        cancelled = True
        await nothing_open(probe, patience_s)
