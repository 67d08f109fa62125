"""The rollouts of a run folder as recorded calls: real tokens, real tool seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.records import from_record
from obsspec.rollout.trajectory import Trajectory
from obsspec.values import ConfigError, Tokens
from obsspec.worldeval.emptiness import EmptyTexts
from obsspec.worldeval.recorded import Recorded
from obsspec.worldeval.rows import Entry, counted

ROLLOUTS = "rollouts.jsonl"
PROBE = "probe.json"  # what `obsspec world probe` found out about a run
KIND = "terminal"


class RunRollouts:
    """One arm of a run folder, in the order in which its rollouts finished; the folder is only read.

    Raises `ConfigError` for a line that is no rollout, and if the arm has none with a tool call.
    """

    def __init__(self, folder: Path, arm: str) -> None:
        self.name = folder.name
        self._path = folder / ROLLOUTS
        self._arm = arm
        self._empty = EmptyTexts()
        self._foreign = _foreign(folder)
        self._probed = _probed(folder)
        try:
            self._file = self._path.open("rb")
        except OSError as error:
            raise ConfigError(f"can not read {self._path}: {error.strerror or error}") from error
        try:
            self.rollouts = counted(self._index())
            if not self.rollouts:
                raise ConfigError(f"{self._path} holds no tool call of the arm {arm!r}: choose another --arm")
        except BaseException:
            self.close()
            raise

    @property
    def empty_texts(self) -> dict[str, str]:
        return self._empty.usual()

    def read(self, entry: Entry) -> tuple[Recorded, ...]:
        self._file.seek(entry.where[0][1])
        turns = recorded(from_record(json.loads(self._file.readline())), tokens=not self._foreign)
        probed = self._probed.get(entry.traj, {})
        return tuple(replace(turn, probed=probed.get(str(turn.step))) for turn in turns)

    def close(self) -> None:
        self._file.close()

    def _index(self) -> Iterator[Entry]:
        offset = 0
        for number, line in enumerate(self._file, 1):
            if line.endswith(b"\n"):  # else the run is still writing it
                result = self._rollout(number, line)
                turns = () if result is None else recorded(result)
                for turn in turns:
                    self._empty.count(turn.call.name, turn.observation.text)
                if turns:
                    yield Entry(turns[0].task, turns[0].traj, turns[0].model, [(0, offset)], len(turns))
            offset += len(line)

    def _rollout(self, number: int, line: bytes) -> RolloutResult | None:
        try:
            record = json.loads(line)
            return from_record(record) if record["arm"] == self._arm else None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ConfigError(
                f"{self._path} line {number}: no rollout ({type(error).__name__}: {error}); "
                "the folder was made by another version: make the run again"
            ) from error


def recorded(result: RolloutResult, *, tokens: bool = True) -> tuple[Recorded, ...]:
    """The turns of one rollout that called a tool; without `tokens`, the policy's tokens are left out."""
    return tuple(
        Recorded(
            kind=KIND,
            task=result.task_id,
            traj=result.seed,
            model=turn.completion.weight_version,
            step=turn.level,
            calls=turn.calls,
            observations=turn.observations,
            tool_s=turn.tool_s,
            prompt=prompt if tokens else (),
            completion=turn.completion.token_ids if tokens else (),
        )
        for turn, prompt in zip(result.trajectory.turns, _prompts(result.trajectory), strict=True)
        if turn.calls and turn.observations
    )


def _foreign(folder: Path) -> bool:
    """Whether the tokens of a run are in another format or vocabulary than those of the bundled model."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return (config["format"], config["tokenizer"]) != ("terminal", "bundled")
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _probed(folder: Path) -> dict[str, dict[str, bool]]:
    """By rollout and turn, whether running it again printed the same; nothing if the run was not probed."""
    try:
        return dict(json.loads((folder / PROBE).read_text(encoding="utf-8"))["equal"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{folder / PROBE} is damaged: delete it, or probe the run again") from None


def _prompts(trajectory: Trajectory) -> Iterator[Tokens]:
    """The prompt of each turn: all ids before the run of sampled ones that is the turn."""
    position = 0
    for turn in trajectory.turns:
        start = trajectory.mask.index(1, position)
        yield tuple(trajectory.ids[:start])
        position = start + len(turn.completion.token_ids)
