"""Runs an evaluation: every rollout under every protocol, every source asked for every call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

from obsspec.protocols import WorldModel
from obsspec.values import Context
from obsspec.worldeval.asking import Answer, ask, teach, texts
from obsspec.worldeval.baselines import NO_OUTPUT, REPEAT, NoOutput, Repeat, is_empty
from obsspec.worldeval.data import Data
from obsspec.worldeval.recorded import Image, Recorded, contexts, label, written
from obsspec.worldeval.schedule import Item, Protocol, scopes
from obsspec.worldeval.sources import Source
from obsspec.worldeval.stages import Answered, Cascading
from obsspec.worldeval.store import Row, RowWriter, cut

CASCADE = "cascade"
WITHOUT = "cascade without "


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. `sources`: cheapest first."""

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
class _Bench:
    """Everything that learns, alive for one scope."""

    plan: Plan
    models: Mapping[str, WorldModel]
    cascades: Mapping[str, _Staged]

    async def ask(self, context: Context) -> dict[str, Answer]:
        plan = self.plan
        answers = {name: await ask(m, context, plan.breadth, plan.timeout_s) for name, m in self.models.items()}
        return answers | {name: await each.ask(answers, context, plan) for name, each in self.cascades.items()}

    def teach(self, context: Context, turn: Recorded) -> dict[str, str]:
        """What went wrong, by name."""
        models = {**self.models, **{name: staged.cascade for name, staged in self.cascades.items()}}
        return {name: teach(model, context, turn.observations) for name, model in models.items()}


@dataclass(slots=True)
class _Repeats:
    """Whether an earlier call with the same history in the same task had the same text."""

    _seen: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    def check(self, context: Context, turn: Recorded) -> bool | None:
        calls = [exchange.calls for exchange in context.history] + [context.calls]
        key = _digest(context.task_id, *(f"{call.name} {written(call)}" for each in calls for call in each))
        text = _digest(*texts(turn.observations))
        before, self._seen[key] = self._seen.get(key), text
        return None if before is None else before == text


async def evaluate(data: Sequence[Data], plan: Plan, rows: RowWriter, advance: Callable[[], None]) -> None:
    """Writes a row for each source and call; `advance` is called after each call. Cancelled: rows so far stand."""
    for each in data:
        for protocol in plan.protocols:
            repeats = _Repeats()
            rollouts = each.rollouts[: plan.limit or None]
            for scope in scopes(rollouts, protocol, plan.test_share, plan.split_seed):
                async with _open(plan) as bench:
                    for item in scope:
                        await _rollout(each, protocol, bench, item, repeats, rows, advance)


def count_calls(data: Sequence[Data], plan: Plan) -> int:
    return sum(
        item.entry.calls
        for each in data
        for protocol in plan.protocols
        for scope in scopes(each.rollouts[: plan.limit or None], protocol, plan.test_share, plan.split_seed)
        for item in scope
    )


@asynccontextmanager
async def _open(plan: Plan) -> AsyncGenerator[_Bench, None]:
    async with AsyncExitStack() as stack:
        models: dict[str, WorldModel] = {NO_OUTPUT: NoOutput(), REPEAT: Repeat()}
        for source in plan.sources:
            models[source.name] = await stack.enter_async_context(source.open())
        sources = [source.name for source in plan.sources]
        cascades = {CASCADE: _stage(plan, sources)} if sources else {}
        if plan.ablate and len(sources) > 1:
            for left_out in sources:
                cascades[WITHOUT + left_out] = _stage(plan, [name for name in sources if name != left_out])
        yield _Bench(plan, models, cascades)


def _stage(plan: Plan, names: Sequence[str]) -> _Staged:
    stages = {name: Answered() for name in names}
    return _Staged(plan.cascading(stages), stages)


async def _rollout(
    data: Data,
    protocol: Protocol,
    bench: _Bench,
    item: Item,
    repeats: _Repeats,
    rows: RowWriter,
    advance: Callable[[], None],
) -> None:
    for number, (turn, context) in enumerate(contexts(data.read(item.entry), bench.plan.image), item.entry.first):
        repeat = repeats.check(context, turn)
        answers = await bench.ask(context)
        errors = bench.teach(context, turn)
        for source, answer in answers.items():
            error = answer.error or errors[source]
            rows.add(_row(data.name, protocol, source, number, item.test, turn, answer, error, repeat))
        advance()


def _row(
    data: str,
    protocol: Protocol,
    source: str,
    number: int,
    test: bool,
    turn: Recorded,
    answer: Answer,
    error: str,
    repeat: bool | None,
) -> Row:
    expected = texts(turn.observations)
    found = [texts(candidate.observations) for candidate in answer.candidates]
    rank = found.index(expected) if expected in found else -1
    best = answer.candidates[0] if answer.candidates else None
    return Row(
        data=data,
        protocol=protocol,
        source=source,
        call=number,
        kind=cut(turn.kind),
        model=cut(turn.model),
        task=cut(turn.task),
        traj=cut(turn.traj),
        step=turn.step,
        test=test,
        tool=cut(turn.call.name),
        program=cut(label(turn.call)),
        candidates=len(found),
        rank=rank,
        said_by="" if best is None else best.source,
        confidence=None if best is None else best.confidence,
        latency_s=answer.first_s,
        total_s=answer.total_s,
        failed=bool(error),
        error=cut(error),
        trivial=all(map(is_empty, expected)),
        tool_s=turn.tool_s,
        replay_s=turn.replay_s,
        replay_equal=None if turn.replay_output is None else expected == (turn.replay_output,),
        repeat_equal=repeat,
        command=cut(written(turn.call)),
        expected=cut("\n".join(expected)),
        predicted=cut("\n".join(found[0])) if found and rank != 0 else "",
    )


def _digest(*parts: str) -> bytes:
    digest = blake2b(digest_size=12)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()
