"""What a simulation needs to know of a run folder: turns, tools, what each source said, and the engine's pace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obsspec.rollout.collector import RolloutResult
from obsspec.rollout.records import from_record
from obsspec.rollout.trajectory import TurnRecord
from obsspec.sandbox.latency import LatencySpec
from obsspec.sim.pace import engine_cost, gaps
from obsspec.sim.replica import Room
from obsspec.sim.roofline import StepCost
from obsspec.sim.workload import PlannedTurn
from obsspec.speculation.classes import command_class
from obsspec.speculation.trace import Attempted
from obsspec.values import ConfigError, Outcome

SEQUENTIAL, SPECULATIVE = "sequential", "speculative"
LM = "lm"  # the source that runs on an engine
CHUNKS = {"exact": 8, "fast": 32}  # of the embedded engine's modes
Unhurried = dict[tuple[str, int], TurnRecord]  # by (seed, level)


@dataclass(frozen=True, slots=True)
class Guess:
    """A candidate that was there in time, `seconds` after the turn; `source` without what follows the "/"."""

    source: str
    right: bool
    seconds: float
    confidence: float


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """`rollouts` of turns; `guesses` by `PlannedTurn.record`. Latencies of the arms are None where there is none.

    `chunk`: prompt tokens that a step of its embedded engine computes, or as many as it has slots; 0: another engine.
    """

    config: dict[str, Any]
    rollouts: tuple[tuple[PlannedTurn, ...], ...]
    guesses: tuple[tuple[Guess, ...], ...]
    prompt_tokens: int
    cost: StepCost
    chunk: int
    sequential_s: float | None
    speculative_s: float | None

    @property
    def sources(self) -> tuple[str, ...]:
        """Those that said anything in time, the most frequent first."""
        said = [guess.source for turn in self.guesses for guess in turn]
        return tuple(sorted(set(said), key=lambda name: (-said.count(name), name)))

    def setting(self, name: str, default: int) -> int:
        value = self.config.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


def read_run(folder: Path, before: str = SEQUENTIAL, arm: str = SPECULATIVE) -> RecordedRun:
    """The rollouts of `arm`; their tools took as long as in those of the sequential arm `before`, if it is there.

    Raises `ConfigError` for a folder without complete rollouts.
    """
    config, by_arm = _config(folder), _rollouts(folder)
    speculative, sequential = by_arm.get(arm, []), by_arm.get(before, [])
    chosen = speculative or sequential
    if not chosen:
        raise ConfigError(f"{folder} holds no finished rollout: give a folder that `obsspec compare` wrote to")
    unhurried = {(r.seed, turn.level): turn for r in sequential for turn in r.trajectory.turns}
    way_s, chunk = _way_s(config), _chunk(config)
    turns: list[tuple[PlannedTurn, ...]] = []
    guesses: list[tuple[Guess, ...]] = []
    for result in chosen:
        turns.append(tuple(_turns(result, guesses, unhurried, way_s)))
    return RecordedRun(
        config=config,
        rollouts=tuple(turns),
        guesses=tuple(guesses),
        prompt_tokens=round(sum(gaps(r.trajectory)[0] for r in chosen) / len(chosen)),
        cost=engine_cost([sequential, speculative], chunk or Room().chunk),
        chunk=chunk,
        sequential_s=_agent_s(sequential),
        speculative_s=_agent_s(speculative),
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{folder} is no run folder (config.json: {error.strerror or error})") from error
    except (ValueError, TypeError):
        raise ConfigError(f"{folder / 'config.json'} is damaged: make the run again") from None


def _rollouts(folder: Path) -> dict[str, list[RolloutResult]]:
    found: dict[str, list[RolloutResult]] = {}
    path = folder / "rollouts.jsonl"
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):  # the run is still writing it
                    break
                arm, result = _read(path, number, line)
                if result.trajectory.turns and not result.trajectory.stop.is_error:
                    found.setdefault(arm, []).append(result)
    except OSError as error:
        raise ConfigError(f"can not read {path}: {error.strerror or error}") from error
    return found


def _read(path: Path, number: int, line: bytes) -> tuple[str, RolloutResult]:
    try:
        record = json.loads(line)
        return record["arm"], from_record(record)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ConfigError(
            f"line {number} of {path} is no rollout ({type(error).__name__}): delete that line"
        ) from error


def _agent_s(results: Sequence[RolloutResult]) -> float | None:
    return sum(r.trajectory.agent_s for r in results) / len(results) if results else None


# Turns ----------------------------------------------------------------------------------------------------------------


def _turns(
    result: RolloutResult, guesses: list[tuple[Guess, ...]], unhurried: Unhurried, way_s: float
) -> Iterator[PlannedTurn]:
    """Calls of one turn count as one; a rollout that ends with a call gets a last turn of one token.

    Of a call that was sent ahead the loop saw only the rest: how long it took is known from the sequential rollout.
    """
    attempts = {a.level: a for a in result.speculation.attempts} if result.speculation else {}
    trajectory = result.trajectory
    after = gaps(trajectory)[1:]
    for turn, seen in zip(trajectory.turns, after, strict=True):
        tokens = max(1, len(turn.completion.token_ids))
        last = turn is trajectory.turns[-1]
        if last and not turn.calls:
            yield PlannedTurn(tokens)
            return
        guesses.append(tuple(_guesses(attempts.get(turn.level))))
        kind = command_class(turn.calls) or "error"
        alone = unhurried.get((result.seed, turn.level), turn)
        tool_s = alone.tool_s if alone.calls == turn.calls else turn.tool_s
        yield PlannedTurn(
            tokens, kind, tool_s, max(1, seen), len(guesses) - 1, way_s=min(tool_s, way_s * len(turn.calls))
        )
    yield PlannedTurn(1)


def _chunk(config: Mapping[str, Any]) -> int:
    if str(config.get("policy", "")).startswith(("http://", "https://")):
        return 0
    return CHUNKS.get(str(config.get("mode")), 0)


def _way_s(config: Mapping[str, Any]) -> float:
    """What of a call the run's remote sandbox took for the way there and back, on average."""
    if config.get("sandbox", "remote") != "remote" or "latency" not in config:
        return 0.0
    return LatencySpec.parse(str(config["latency"])).mean


def _guesses(attempt: Attempted | None) -> Iterator[Guess]:
    if attempt is None or attempt.prediction_s is None:
        return
    if attempt.said:
        for said in attempt.said:
            if said.matched is not None:
                yield Guess(_stem(said.source), said.matched, attempt.prediction_s, said.confidence)
    elif attempt.source and attempt.outcome in (Outcome.MATCH, Outcome.ROLLBACK):
        matched = attempt.outcome is Outcome.MATCH
        yield Guess(_stem(attempt.source), matched, attempt.prediction_s, attempt.confidence)


def _stem(source: str) -> str:
    return source.partition("/")[0]
