"""Runs an evaluation: every rollout under every protocol, every source asked for every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from obsspec.values import Context
from obsspec.worldeval.asking import Answer, texts
from obsspec.worldeval.bench import Bench, Known, Plan, open_scope
from obsspec.worldeval.data import Data
from obsspec.worldeval.emptiness import is_empty
from obsspec.worldeval.recorded import Recorded, contexts, identity, label, written
from obsspec.worldeval.schedule import Item, Protocol, scopes
from obsspec.worldeval.store import Row, RowWriter, cut


async def evaluate(data: Sequence[Data], plan: Plan, rows: RowWriter, advance: Callable[[], None]) -> None:
    """Writes a row for each source and call; `advance` is called after each call. Cancelled: rows so far stand."""
    for each in data:
        known: Known = {}
        for protocol in plan.protocols:
            measuring = _Measuring(each, protocol, rows, advance)
            for scope in _scopes(each, plan, protocol):
                async with open_scope(plan, each.empty_texts, known) as opened:
                    for item in scope:
                        async with opened.rollout(item.entry.task, item.entry.traj) as bench:
                            await measuring.rollout(bench, item)


def count_calls(data: Sequence[Data], plan: Plan) -> int:
    return sum(
        item.entry.calls
        for each in data
        for protocol in plan.protocols
        for scope in _scopes(each, plan, protocol)
        for item in scope
    )


def _scopes(data: Data, plan: Plan, protocol: Protocol) -> Iterator[list[Item]]:
    return scopes(data.rollouts[: plan.limit or None], protocol, plan.test_share, plan.split_seed)


@dataclass(frozen=True, slots=True)
class _Measuring:
    """One data set under one protocol."""

    data: Data
    protocol: Protocol
    rows: RowWriter
    advance: Callable[[], None]
    repeats: _Repeats = field(default_factory=lambda: _Repeats())

    async def rollout(self, bench: Bench, item: Item) -> None:
        turns = contexts(self.data.read(item.entry), bench.plan.image)
        for number, (turn, context) in enumerate(turns, item.entry.first):
            repeat = self.repeats.check(context, turn)
            answers = await bench.ask(context, number)
            errors = bench.teach(context, turn)
            facts = _Facts(self.data.name, self.protocol, number, item.test, repeat)
            for source, answer in answers.items():
                self.rows.add(_row(source, facts, turn, answer, answer.error or errors[source]))
            self.advance()


@dataclass(slots=True)
class _Repeats:
    """Whether an earlier call with the same history in the same task had the same text."""

    _seen: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    def check(self, context: Context, turn: Recorded) -> bool | None:
        """None: there was no such call."""
        calls = [exchange.calls for exchange in context.history] + [context.calls]
        key = _digest(context.task_id, *(identity(call) for each in calls for call in each))
        text = _digest(*texts(turn.observations))
        before, self._seen[key] = self._seen.get(key), text
        return None if before is None else before == text


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is the same for all sources of one call."""

    data: str
    protocol: Protocol
    number: int
    test: bool
    repeat: bool | None


def _row(source: str, facts: _Facts, turn: Recorded, answer: Answer, error: str) -> Row:
    expected = texts(turn.observations)
    found = [texts(candidate.observations) for candidate in answer.candidates]
    rank = found.index(expected) if expected in found else -1
    best = answer.candidates[0] if answer.candidates else None
    return Row(
        data=facts.data,
        protocol=facts.protocol,
        source=source,
        call=facts.number,
        kind=cut(turn.kind),
        model=cut(turn.model),
        task=cut(turn.task),
        traj=cut(turn.traj),
        step=turn.step,
        test=facts.test,
        tool=cut(turn.call.name),
        program=cut(label(turn.call)),
        candidates=len(found),
        rank=rank,
        said_by="" if best is None else cut(best.source),
        confidence=None if best is None else best.confidence,
        latency_s=answer.first_s,
        total_s=answer.total_s,
        failed=bool(error),
        error=cut(error),
        trivial=all(map(is_empty, expected)),
        tool_s=turn.tool_s,
        replay_s=turn.replay_s,
        replay_equal=turn.replay_equal,
        repeat_equal=facts.repeat,
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
