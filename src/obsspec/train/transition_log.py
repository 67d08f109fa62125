"""The transition log: a directory in which collectors write committed turns down while trainers follow them.

Each writer has a segment of its own (`obsspec.train.segments`). A rollout is a chain of records, each naming the one
before it by its place and holding only the tokens it adds: its start, its turns, its end. A turn is in the log as soon
as its observation is known, so a rollout that dies keeps the turns it finished. A rollout that is made again, after a
crash or from a checkpoint, goes along the chain that is there as far as it says the same, and branches off where it
does not: the log has no gap and no duplicate.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from obsspec.rollout.collector import Job, RolloutResult
from obsspec.rollout.trajectory import Trajectory, TurnRecord
from obsspec.speculation.trace import Attempted, SpeculationReport
from obsspec.tasks.task import Split
from obsspec.train.segments import SUFFIX, Record, Segment, record_at, records
from obsspec.train.transitions import Ended, Transition, observation_ranges
from obsspec.values import ConfigError, Observation, Outcome, StopReason, Tokens, ToolCall

Position = Mapping[str, int]  # bytes of each writer's segment that have been read: JSON, for checkpoints


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
        self._chains: dict[str, list[int]] = {}  # where the records of each rollout are
        for begin, _, record in records(self._segment.path):
            self._chains.setdefault(record["rollout"], []).append(begin)

    def __enter__(self) -> TransitionWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._segment.sync()
        self._segment.close()

    def sync(self) -> None:
        """Everything appended so far survives a power failure."""
        self._segment.sync()

    def begin(self, job: Job) -> RolloutWriter:
        """A rollout of a training task is about to start."""
        environment = job.environment
        split = environment.split if isinstance(environment, HasSplit) else None
        if split is not Split.TRAIN:
            raise ConfigError(
                f"task {environment.task_id} is not of the training split ({split or 'its environment names none'}): "
                "collect it without a transition log"
            )
        return RolloutWriter(self, job)

    def known(self, rollout: str) -> dict[str, int]:
        """Records of a rollout that are there, by what they say."""
        begins = self._chains.get(rollout, ())
        return {_said(record_at(self._segment.path, begin)): begin for begin in begins}

    def append(self, record: Record) -> int:
        begin = self._segment.append(record)
        self._chains.setdefault(record["rollout"], []).append(begin)
        return begin


class RolloutWriter:
    """The chain of one rollout: `committed` after each turn, `ended` once."""

    def __init__(self, writer: TransitionWriter, job: Job) -> None:
        self._writer = writer
        self._known = writer.known(job.rules.seed)
        self._job = job
        self._last: int | None = None
        self._length = 0  # tokens in the log so far

    def committed(self, trajectory: Trajectory, report: SpeculationReport | None) -> None:
        """The last turn of the trajectory is over, and what the policy saw of it is appended."""
        if self._last is None:
            self._start(trajectory)
        turn = trajectory.turns[-1]
        prompt, action = tuple(trajectory.ids[: self._length]), turn.completion.token_ids
        seen = tuple(trajectory.ids)
        observed = turn.observations if turn.calls else ()
        ranges = observation_ranges(self._job.rules.renderer, prompt, action, observed, seen)
        attempts = report.attempts if report is not None else ()
        attempt = next((a for a in reversed(attempts) if a.level == turn.level), None)
        self._append(
            {
                "kind": "turn",
                "level": turn.level,
                "action": action,
                "frames": seen[len(prompt) + len(action) :],
                "targets": [(start - len(prompt), stop - len(prompt)) for start, stop in ranges],
                **_told(turn, attempt),
            }
        )
        self._length = len(seen)

    def ended(self, result: RolloutResult) -> None:
        trajectory, reward = result.trajectory, result.verdict.reward
        if self._last is None:
            self._start(trajectory)
        self._append({"kind": "end", "stop": trajectory.stop, "reward": reward, "error": trajectory.error})

    def _start(self, trajectory: Trajectory) -> None:
        job = self._job
        self._length = next((at for at, sampled in enumerate(trajectory.mask) if sampled), len(trajectory.mask))
        self._append(
            {
                "kind": "start",
                "task_id": job.environment.task_id,
                "image": job.environment.image,
                "group": job.group,
                "split": Split.TRAIN,
                "step": job.step,
                "ids": trajectory.ids[: self._length],
            }
        )

    def _append(self, record: Record) -> None:
        record = {**record, "rollout": self._job.rules.seed, "after": self._last}
        known = self._known.get(_said(record)) if self._known else None
        self._last = known if known is not None else self._writer.append(record)


def _told(turn: TurnRecord, attempt: Attempted | None) -> Record:
    return {
        "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in turn.calls],
        "observations": [_observation_to_record(observation) for observation in turn.observations],
        "policy_version": turn.completion.weight_version,
        "outcome": attempt.outcome if attempt is not None else None,
        "source": attempt.source if attempt is not None else "",
        "world_version": attempt.version if attempt is not None else "",
    }


def _said(record: Record) -> str:
    """What makes two records of a rollout the same: their place, and the tokens they add. Not how long they took."""
    names = ("kind", "after", "ids", "action", "frames", "stop")
    return json.dumps([record.get(name) for name in names])


@dataclass(frozen=True, slots=True)
class _Path:
    """What a record's chain says up to that record."""

    start: Record
    ids: Tokens
    versions: tuple[str, ...]


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
        self._paths: OrderedDict[tuple[str, int], _Path] = OrderedDict()  # tips of rollouts that are under way

    @property
    def position(self) -> dict[str, int]:
        return dict(self._position)

    def poll(self, limit: int = 4096) -> News:
        """What is new, at most about `limit` records, the same share from each writer; empty if there is nothing.

        Whoever wants the whole log polls until nothing comes. Raises `ConfigError` for a damaged log.
        """
        news = News()
        segments = sorted(self._log.glob(f"*{SUFFIX}"))
        for segment in segments:
            for _, (begin, end, record) in zip(range(-(-limit // len(segments))), self._new(segment), strict=False):
                self._take(segment, begin, record, news)
                self._position[segment.stem] = end
        news.transitions.sort(key=lambda t: t.order)
        news.ended.sort(key=lambda e: (e.step, e.writer, e.offset))
        return news

    def _new(self, segment: Path) -> Iterator[tuple[int, int, Record]]:
        return records(segment, self._position.get(segment.stem, 0))

    def _take(self, segment: Path, begin: int, record: Record, news: News) -> None:
        before = None if record["after"] is None else self._path(segment, record["after"])
        if record["kind"] == "end":
            assert before is not None
            news.ended.append(_ended(segment.stem, begin, record, before))
            return
        path = self._paths[segment.stem, begin] = _extended(before, record)
        if before is not None:
            news.transitions.append(_transition(segment.stem, begin, record, len(before.ids), path))
        while len(self._paths) > 1024:
            self._paths.popitem(last=False)

    def _path(self, segment: Path, begin: int) -> _Path:
        """Of a record that was read before: remembered, or read again."""
        chain: list[Record] = []
        at: int | None = begin
        path = None
        while at is not None and path is None:
            path = self._paths.pop((segment.stem, at), None)
            if path is None:
                chain.append(record_at(segment, at))
                at = chain[-1]["after"]
        for record in reversed(chain):
            path = _extended(path, record)
        assert path is not None
        return path


def _extended(before: _Path | None, record: Record) -> _Path:
    if before is None:
        return _Path(record, tuple(record["ids"]), ())
    ids = (*before.ids, *record["action"], *record["frames"])
    return _Path(before.start, ids, (*before.versions, record["policy_version"]))


def _transition(writer: str, begin: int, record: Record, before: int, path: _Path) -> Transition:
    start = path.start
    return Transition(
        rollout=record["rollout"],
        level=record["level"],
        step=start["step"],
        writer=writer,
        offset=begin,
        split=Split(start["split"]),
        task_id=start["task_id"],
        image=start["image"],
        group=start["group"],
        ids=path.ids,
        action=(before, before + len(record["action"])),
        targets=tuple((before + begin, before + end) for begin, end in record["targets"]),
        calls=tuple(ToolCall(call["name"], MappingProxyType(call["arguments"])) for call in record["calls"]),
        observations=tuple(Observation(**fields) for fields in record["observations"]),
        policy_versions=path.versions,
        outcome=None if record["outcome"] is None else Outcome(record["outcome"]),
        source=record["source"],
        world_version=record["world_version"],
    )


def _ended(writer: str, begin: int, record: Record, before: _Path) -> Ended:
    return Ended(
        rollout=record["rollout"],
        step=before.start["step"],
        writer=writer,
        offset=begin,
        stop=StopReason(record["stop"]),
        reward=record["reward"],
        error=record["error"],
    )


def _observation_to_record(observation: Observation) -> Record:
    return {name: value for name, value in asdict(observation).items() if name != "raw"}
