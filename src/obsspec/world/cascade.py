"""The cascade: cheap sources answer first, expensive ones are asked only if that is worth it, and all are calibrated.

Every candidate's confidence is what `Reliability` makes of the source's own: by source and command class, learnt from
all that the stages say, used or not. A stage that fails is silent for that turn; one that keeps failing is left alone
for a while. Every stage is told of every committed turn, whatever else happened to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from obsspec.protocols import Emit
from obsspec.speculation.classes import command_class
from obsspec.speculation.decisions import Ask, Decision, Predicted
from obsspec.speculation.gate import Gate, OpenGate
from obsspec.values import Context, Observation, Prediction, Tokens
from obsspec.world.bids import Bids
from obsspec.world.stages import CascadeMemory, Foresees, Price, Stage, StageCounts

REMEMBERED = 64  # turns whose candidates wait for the truth, branches that are dropped included


@dataclass(frozen=True, slots=True)
class CascadeSettings:
    """`sure`: a candidate this likely is emitted at once; `min_confidence`: a less likely one is never emitted.

    `wait_s`: how long the cheap stages have before the best candidate so far is taken, or an expensive one is asked.
    `patience`: a sure candidate may be replaced for so many times the seconds that a better one is foreseen to take.
    """

    sure: float = 0.9
    min_confidence: float = 0.15
    wait_s: float = 0.3
    patience: float = 4.0


class Cascade:
    """A `WorldModel` of several. Cancelling `predict` cancels all stages; `learn` never waits.

    A sure candidate is emitted as it comes; tentatively, if it takes the last place and a better one is foreseen. With
    breadth 1 a candidate that is not sure waits for an expensive source if the gate finds that worth it; with more
    breadth both are emitted. Equal candidates are emitted once, with the highest of their confidences.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        gate: Gate | None = None,
        settings: CascadeSettings | None = None,
        memory: CascadeMemory | None = None,
    ) -> None:
        self._cheap = [stage for stage in stages if stage.price is Price.CHEAP]
        self._expensive = [stage for stage in stages if stage.price is Price.EXPENSIVE]
        self._stages = list(stages)
        self._gate = gate or OpenGate()
        self._settings = settings or CascadeSettings()
        self._memory = memory or CascadeMemory()
        self._turns: dict[tuple[Tokens, Tokens], Bids] = {}
        self._decisions: list[Decision] = []

    def statistics(self) -> dict[str, StageCounts]:
        """By stage; shared by all cascades with one memory."""
        return self._memory.counts

    def take_decisions(self) -> list[Decision]:
        """Of the gate, about asking expensive stages, since this was last called."""
        taken, self._decisions = self._decisions, []
        return taken

    # Predicting -------------------------------------------------------------------------------------------------

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        bids = self._bids(context, breadth, emit)
        patience_s = self._foresee(context, bids)
        start_s = anyio.current_time()
        try:
            async with anyio.create_task_group() as tasks:
                bids.when_full(tasks.cancel_scope.cancel)
                left = [len(self._cheap)]
                done = anyio.Event()
                for stage in self._cheap:
                    tasks.start_soon(self._cheap_stage, stage, context, bids, left, done)
                if patience_s:
                    with anyio.move_on_after(patience_s):
                        await done.wait()
                    bids.await_no_more()
                if self._cheap:
                    with anyio.move_on_after(self._settings.wait_s - patience_s):
                        await done.wait()
                await self._expensive_stages(context, bids, start_s)
        finally:
            bids.close()

    def _foresee(self, context: Context, bids: Bids) -> float:
        """Tells `bids` which answers are going to come, and returns for how long they may replace others."""
        patience_s = 0.0
        for stage in self._cheap:
            prospect = stage.model.foresee(context) if isinstance(stage.model, Foresees) else None
            if prospect is not None:
                p = self._memory.reliability.mean(stage.name, bids.kind, prospect.p)
                bids.await_answer(stage.name, p)
                patience_s = max(patience_s, self._settings.patience * prospect.seconds)
        return min(patience_s, self._settings.wait_s)

    async def _cheap_stage(
        self, stage: Stage, context: Context, bids: Bids, left: list[int], done: anyio.Event
    ) -> None:
        await self._ask(stage, context, bids)
        bids.await_no_more(stage.name)
        left[0] -= 1
        if not left[0]:
            done.set()

    async def _expensive_stages(self, context: Context, bids: Bids, start_s: float) -> None:
        """Each in turn, if it is worth it; what is known meanwhile is emitted as soon as nothing better may come."""
        for stage in self._expensive:
            if bids.breadth > 1:
                bids.release()
            if bids.is_full or bids.is_sure or not self._is_worth(stage, context, bids, anyio.current_time() - start_s):
                continue
            await self._ask_expensive(stage, context, bids)
        bids.release()

    async def _ask_expensive(self, stage: Stage, context: Context, bids: Bids) -> None:
        """Its latency is told to the gate, and how often it answers rightly is learnt, silence included."""
        asked_s = anyio.current_time()
        ended = True
        try:
            ended = await self._ask(stage, context, bids)
        except anyio.get_cancelled_exc_class():
            ended = bids.is_full  # otherwise the tool was faster
            raise
        finally:
            self._gate.saw(Predicted(stage.name, anyio.current_time() - asked_s, late=not ended))
            if ended:
                bids.answered.append(stage.name)

    def _is_worth(self, stage: Stage, context: Context, bids: Bids, elapsed_s: float) -> bool:
        depth = len(context.history) - context.committed
        p = self._memory.reliability.mean(_asking(stage), bids.kind, 0.5)
        have, beside = bids.best, bids.breadth > 1
        decision = self._gate.asks(Ask(len(context.history), bids.kind, stage.name, p, have, beside, depth, elapsed_s))
        self._decisions.append(decision)
        self._memory.of(stage.name).refused += not decision.allowed
        return decision.allowed

    async def _ask(self, stage: Stage, context: Context, bids: Bids) -> bool:
        """Whether the stage came to an end by itself. Its errors are counted, and make it silent for this turn."""
        counts, fuse = self._memory.of(stage.name), self._memory.fuse(stage.name)
        if not fuse.allows():
            return False
        counts.asked += 1

        def said(prediction: Prediction) -> None:
            counts.said += 1
            bids.add(stage.name, prediction)

        try:
            await stage.model.predict(context, bids.breadth, said)
        except Exception:  # noqa: BLE001 - typed: counted, and this stage says no more about this turn
            counts.errors += 1
            fuse.record(failed=True)
            return False
        fuse.record(failed=False)
        return True

    def _bids(self, context: Context, breadth: int, emit: Emit) -> Bids:
        settings, memory = self._settings, self._memory
        kind = command_class(context.calls)

        def calibrate(said: Prediction) -> float:
            return memory.reliability.mean(said.source, kind, said.confidence)

        def emitted(stage: str, said: Prediction) -> None:
            memory.of(stage).emitted += 1
            emit(said)

        calls, least = len(context.calls), settings.min_confidence
        bids = Bids(kind, calls, breadth, calibrate, emitted, settings.sure, least)
        while len(self._turns) >= REMEMBERED:
            del self._turns[next(iter(self._turns))]
        self._turns[context.prompt, context.completion] = bids
        return bids

    # Learning ---------------------------------------------------------------------------------------------------

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Every stage is told; what each said about this very turn is compared with the truth."""
        bids = self._turns.pop((context.prompt, context.completion), None)
        if bids is not None:
            bids.close()
            self._compare(bids, tuple(o.text for o in observations))
        for stage in self._stages:
            try:
                stage.model.learn(context, observations)
            except Exception:  # noqa: BLE001 - typed: counted
                self._memory.of(stage.name).learning_errors += 1

    def _compare(self, bids: Bids, truth: tuple[str, ...]) -> None:
        reliability = self._memory.reliability
        for bid in bids.all:
            matched = bid.texts == truth
            counts = self._memory.of(bid.stage)
            counts.compared += 1
            counts.right += matched
            reliability.record(bid.said.source, bids.kind, bid.said.confidence, matched)
        for stage in self._expensive:
            if stage.name in bids.answered:
                right = any(bid.stage == stage.name and bid.texts == truth for bid in bids.all)
                reliability.record(_asking(stage), bids.kind, 0.5, right)


def _asking(stage: Stage) -> str:
    """Under which name it is remembered how often asking a stage gives a right candidate."""
    return f"asking {stage.name}"
