"""The transition log: a directory in which collectors write committed turns down while trainers follow them.

Each writer has a segment of its own (`obsspec.train.segments`), in which each rollout is a chain of records
(`obsspec.train.chains`) that name the one before them by its place. A turn is in the log as soon as its observation is
known, so a rollout that dies keeps the turns it finished. A rollout that is made again, after a crash or from a
checkpoint, goes along the chain that is there as far as it says the same, and branches off where it does not: the log
has no gap and no duplicate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Protocol, runtime_checkable

from obsspec.rollout.collector import Job, RolloutResult
from obsspec.rollout.disk import to_disk
from obsspec.rollout.trajectory import Trajectory
from obsspec.speculation.trace import SpeculationReport
from obsspec.tasks.task import Split
from obsspec.train.chains import (
    END,
    START,
    Chain,
    end_record,
    ended_of,
    extended,
    said,
    start_record,
    transition_of,
    turn_record,
)
from obsspec.train.segments import SUFFIX, Record, Segment, record_at, records
from obsspec.train.transitions import Ended, Transition
from obsspec.values import ConfigError

Position = Mapping[str, int]  # bytes of each writer's segment that have been read: JSON, for checkpoints
_TIPS = 1024  # of chains that are remembered


@runtime_checkable
class HasSplit(Protocol):
    """An environment that says which split its task belongs to."""

    @property
    def split(self) -> Split: ...


class TransitionWriter:
    """Writes the rollouts of one collector. A resumed run gives each of its writers the name it had.

    Appending blocks for the time of one write to the page cache. A context manager; leaving it makes all durable.
    Errors: `ConfigError` as of `Segment`, and for a rollout that is not of the training split.
    """

    def __init__(self, log: Path, name: str) -> None:
        self._segment = Segment(log, name)
        self._places: dict[str, list[int]] = {}  # of the records of each rollout
        for begin, _, record in records(self._segment.path):
            self._places.setdefault(record["rollout"], []).append(begin)

    def __enter__(self) -> TransitionWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._segment.sync()
        self._segment.close()

    def sync(self) -> None:
        """Everything appended so far survives a power failure."""
        self._segment.sync()

    def begin(self, job: Job) -> RolloutWriter:
        """A rollout of a training task is about to start. Nothing is written before its first turn."""
        environment = job.environment
        split = environment.split if isinstance(environment, HasSplit) else None
        if split is not Split.TRAIN:
            raise ConfigError(
                f"task {environment.task_id} is not of the training split ({split or 'its environment names none'}): "
                "collect it without a transition log"
            )
        return RolloutWriter(self, job)

    def known(self, rollout: str) -> dict[str, int]:
        """Where the records of a rollout are that are there already, by what they say."""
        return {said(record_at(self._segment.path, place)): place for place in self._places.get(rollout, ())}

    def append(self, record: Record) -> int:
        place = self._segment.append(record)
        self._places.setdefault(record["rollout"], []).append(place)
        return place


class RolloutWriter:
    """The chain of one rollout: `committed` after each turn, `ended` once."""

    def __init__(self, writer: TransitionWriter, job: Job) -> None:
        self._writer = writer
        self._job = job
        self._known = writer.known(job.rules.seed)
        self._last: int | None = None
        self._length = 0  # tokens in the chain

    def committed(self, trajectory: Trajectory, report: SpeculationReport | None) -> None:
        """The last turn of the trajectory is over, and what the policy saw of it is appended."""
        self._started(trajectory)
        self._append(turn_record(self._job, trajectory, report, self._length))
        self._length = len(trajectory.ids)

    def ended(self, result: RolloutResult) -> None:
        self._started(result.trajectory)
        self._append(end_record(result))

    def _started(self, trajectory: Trajectory) -> None:
        if self._last is None:
            mask = trajectory.mask
            self._length = next((at for at, sampled in enumerate(mask) if sampled), len(mask))
            self._append(start_record(self._job, trajectory.ids[: self._length]))

    def _append(self, record: Record) -> None:
        record = {**record, "rollout": self._job.rules.seed, "after": self._last}
        known = self._known.get(said(record)) if self._known else None
        self._last = known if known is not None else self._writer.append(record)


@dataclass(slots=True)
class News:
    """What came into a log, in the order of (step, writer, offset)."""

    transitions: list[Transition] = field(default_factory=list[Transition])
    ended: list[Ended] = field(default_factory=list[Ended])


class Follower:
    """Reads a log from a position on, while it is written. The directory need not exist yet.

    `position` is where to go on, also in another process: save it together with what was made of the turns before it.
    """

    def __init__(self, log: Path, position: Position | None = None) -> None:
        self._log = log
        self._position = dict(position or {})
        self._tips: OrderedDict[tuple[str, int], Chain] = OrderedDict()  # of rollouts that are under way

    @property
    def position(self) -> dict[str, int]:
        return dict(self._position)

    def make_durable(self) -> None:
        """What was read survives a power failure, whoever writes it: call it before `position` is saved.

        Raises `ConfigError` where there is no room.
        """
        try:
            to_disk(*(self._log / f"{name}{SUFFIX}" for name in self._position))
        except OSError as error:
            raise ConfigError(f"can not write {self._log}: {error.strerror or error}; free some space there") from error

    def poll(self, limit: int = 4096) -> News:
        """What is new, at most `limit` turns and ends; empty only if nothing is.

        Of all that the writers have, what belongs to the lowest steps comes first; each writer's own order stays.
        Whoever wants the whole log polls until nothing comes. Raises `ConfigError` for a damaged log.
        """
        news = News()
        for segment, place, end, record in self._in_step_order():
            self._take(segment, place, record, news)
            self._position[segment.stem] = end
            limit -= record["kind"] != START
            if limit < 1:
                break
        news.transitions.sort(key=lambda turn: turn.order)
        news.ended.sort(key=lambda end: (end.step, end.writer, end.offset))
        return news

    def _in_step_order(self) -> Iterator[tuple[Path, int, int, Record]]:
        """The new records of all segments, each when all before it in its segment were taken."""
        streams = {s: records(s, self._position.get(s.stem, 0)) for s in sorted(self._log.glob(f"*{SUFFIX}"))}
        heads = {segment: head for segment, stream in streams.items() if (head := next(stream, None))}
        queue = [(self._step(segment, head[2]), segment) for segment, head in heads.items()]
        heapify(queue)
        while queue:
            _, segment = queue[0]
            yield segment, *heads[segment]
            head = next(streams[segment], None)
            if head is None:
                heappop(queue)
            else:
                heads[segment] = head
                heapreplace(queue, (self._step(segment, head[2]), segment))

    def _step(self, segment: Path, record: Record) -> int:
        if record["after"] is None:
            return record["step"]
        chain = self._tips[segment.stem, record["after"]] = self._chain(segment, record["after"])
        return chain.start["step"]

    def _take(self, segment: Path, place: int, record: Record, news: News) -> None:
        before = None if record["after"] is None else self._chain(segment, record["after"])
        if record["kind"] == END:
            assert before is not None
            news.ended.append(ended_of(segment.stem, place, record, before))
            return
        chain = self._tips[segment.stem, place] = extended(before, record)
        if before is not None:
            news.transitions.append(transition_of(segment.stem, place, record, len(before.ids), chain))
        while len(self._tips) > _TIPS:
            self._tips.popitem(last=False)

    def _chain(self, segment: Path, place: int) -> Chain:
        """Up to a record that was read before: remembered, or read again."""
        forgotten: list[Record] = []
        at: int | None = place
        chain = None
        while at is not None and (chain := self._tips.pop((segment.stem, at), None)) is None:
            forgotten.append(record_at(segment, at))
            at = forgotten[-1]["after"]
        for record in reversed(forgotten):
            chain = extended(chain, record)
        assert chain is not None
        return chain
