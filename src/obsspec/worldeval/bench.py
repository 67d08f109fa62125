"""Every source and cascade of an evaluation, opened for rollouts that share what was learnt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from obsspec.protocols import WorldModel
from obsspec.rollout.collector import Shared, WorldModels
from obsspec.values import Context
from obsspec.worldeval.answered import Answered, Cascading
from obsspec.worldeval.asking import Answer, ask, teach
from obsspec.worldeval.baselines import NO_OUTPUT, REPEAT, NoOutput, Repeat
from obsspec.worldeval.environments import environment_of
from obsspec.worldeval.recorded import Image, Recorded
from obsspec.worldeval.schedule import Protocol
from obsspec.worldeval.sources import Source

CASCADE = "cascade"
WITHOUT = "cascade -"  # and the name of the source that it lacks
Known = MutableMapping[tuple[str, int], Answer]  # by source and number of the call: what is the same in every protocol


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `sources`: cheapest first. `limit`: rollouts of each data set, 0 for all."""

    sources: Sequence[Source]
    cascading: Cascading
    protocols: Sequence[Protocol]
    image: Image
    breadth: int = 1
    ablate: bool = False
    test_share: float = 1.0
    split_seed: int = 0
    limit: int = 0
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class _Staged:
    """One cascade over sources that have answered."""

    cascade: WorldModel
    stages: Mapping[str, Answered]

    async def ask(self, answers: Mapping[str, Answer], context: Context, plan: Plan) -> Answer:
        for name, stage in self.stages.items():
            stage.put(answers[name])
        return await ask(self.cascade, context, plan.breadth, plan.timeout_s, self._spent)

    def _spent(self) -> float:
        return sum(stage.asked_s for stage in self.stages.values())


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that is asked and taught in one rollout."""

    plan: Plan
    models: Mapping[str, WorldModel]
    cascades: Mapping[str, _Staged]
    known: Known

    async def ask(self, context: Context, number: int) -> dict[str, Answer]:
        """By source; the cascades after the sources they are made of."""
        answers = {name: await self._ask(name, context, number) for name in self.models}
        return answers | {name: await each.ask(answers, context, self.plan) for name, each in self.cascades.items()}

    def teach(self, context: Context, turn: Recorded) -> dict[str, str]:
        """What went wrong, by source."""
        models = {**self.models, **{name: staged.cascade for name, staged in self.cascades.items()}}
        return {name: teach(model, context, turn.observations) for name, model in models.items()}

    async def _ask(self, name: str, context: Context, number: int) -> Answer:
        if (name, number) in self.known:
            return self.known[name, number]
        answer = await ask(self.models[name], context, self.plan.breadth, self.plan.timeout_s)
        if any(source.stateless for source in self.plan.sources if source.name == name):
            self.known[name, number] = answer
        return answer


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything that learns, for rollouts that share what was learnt."""

    plan: Plan
    models: Mapping[str, WorldModels]
    cascades: Mapping[str, _Staged]
    known: Known

    @asynccontextmanager
    async def rollout(self, task: str, traj: str) -> AsyncGenerator[Bench, None]:
        """What sources start for one rollout is gone when the context is left."""
        environment = environment_of(task, self.plan.image(task))
        async with AsyncExitStack() as stack:
            models = {
                name: await stack.enter_async_context(each.open(environment, traj))
                for name, each in self.models.items()
            }
            yield Bench(self.plan, models, self.cascades, self.known)


@asynccontextmanager
async def open_scope(plan: Plan, empty_texts: Mapping[str, str], known: Known) -> AsyncGenerator[Scope, None]:
    """Sources and cascades that have learnt nothing. Raises what a source raises when it starts."""
    async with AsyncExitStack() as stack:
        models: dict[str, WorldModels] = {NO_OUTPUT: Shared(NoOutput(empty_texts)), REPEAT: Shared(Repeat())}
        for source in plan.sources:
            models[source.name] = await stack.enter_async_context(source.open())
        yield Scope(plan, models, _cascades(plan), known)


def _cascades(plan: Plan) -> dict[str, _Staged]:
    sources = [source.name for source in plan.sources]
    found = {CASCADE: _stage(plan, sources)} if sources else {}
    if plan.ablate and len(sources) > 1:
        for left_out in sources:
            found[WITHOUT + left_out] = _stage(plan, [name for name in sources if name != left_out])
    return found


def _stage(plan: Plan, names: Sequence[str]) -> _Staged:
    stages = {name: Answered() for name in names}
    return _Staged(plan.cascading(stages), stages)
