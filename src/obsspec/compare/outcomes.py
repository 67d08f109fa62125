"""Outcomes of attempts joined with what the tools really answered, in total and per command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from obsspec.compare.statistics import mean, share
from obsspec.rollout.collector import RolloutResult
from obsspec.speculation.trace import Attempted
from obsspec.values import Outcome

ATTEMPTED = (Outcome.MATCH, Outcome.ROLLBACK, Outcome.CANCEL)
TRIVIAL_TEXT = "(no output)\n(exit_code=0)"  # what one guesses who always guesses "no output"


@dataclass(frozen=True, slots=True)
class SettledTurn:
    """One committed turn with a tool call: its attempt, and whether the trivial guess would have been right."""

    attempted: Attempted
    trivial: bool
    tool_s: float


@dataclass(frozen=True, slots=True)
class OutcomeShares:
    """Shares of attempts (they sum to 1). Beside them are counted `gated` turns, which nothing was predicted for or may
    start from, and `failed` ones, whose world model failed or said nothing usable.

    `would_match`: turns, gated ones included, with a right candidate in time.

    `match_nonempty`: matches among attempts whose tool printed something or failed. `match_trivial`: share of
    attempts that always guessing "no output" would have matched.
    """

    turns: int
    attempts: int
    match: float
    rollback: float
    cancel: float
    gated: int
    failed: int
    match_nonempty: float
    match_trivial: float
    tool_s: float
    prediction_s: float
    prediction_p50_s: float
    would_match: int


def settled_turns(results: Iterable[RolloutResult]) -> list[SettledTurn]:
    turns: list[SettledTurn] = []
    for result in results:
        if result.speculation is None:
            continue
        by_level = {turn.level: turn for turn in result.trajectory.turns}
        for attempted in result.speculation.attempts:
            turn = by_level.get(attempted.level)
            texts = [] if turn is None else [observation.text for observation in turn.observations]
            trivial = bool(texts) and all(text == TRIVIAL_TEXT for text in texts)
            turns.append(SettledTurn(attempted, trivial, 0.0 if turn is None else turn.tool_s))
    return turns


def outcome_shares(turns: Sequence[SettledTurn]) -> OutcomeShares:
    counts = Counter(turn.attempted.outcome for turn in turns)
    tried = [turn for turn in turns if turn.attempted.outcome in ATTEMPTED]
    telling = [turn for turn in tried if not turn.trivial]
    matched = sum(turn.attempted.outcome is Outcome.MATCH for turn in telling)
    predicted = [turn.attempted.prediction_s for turn in turns if turn.attempted.prediction_s is not None]
    return OutcomeShares(
        turns=len(turns),
        attempts=len(tried),
        match=share(counts[Outcome.MATCH], len(tried)),
        rollback=share(counts[Outcome.ROLLBACK], len(tried)),
        cancel=share(counts[Outcome.CANCEL], len(tried)),
        gated=counts[Outcome.GATED],
        failed=counts[Outcome.FAILED],
        match_nonempty=share(matched, len(telling)),
        match_trivial=share(sum(turn.trivial for turn in tried), len(tried)),
        tool_s=mean([turn.tool_s for turn in turns]),
        prediction_s=mean(predicted),
        prediction_p50_s=median(predicted) if predicted else float("nan"),
        would_match=sum(turn.attempted.would_match for turn in turns),
    )


def by_command(turns: Sequence[SettledTurn]) -> dict[str, OutcomeShares]:
    """Shares per program, the first word of the command, most frequent first."""
    found: dict[str, list[SettledTurn]] = {}
    for turn in turns:
        found.setdefault(program(turn.attempted.command), []).append(turn)
    ordered = sorted(found, key=lambda name: (-len(found[name]), name))
    return {name: outcome_shares(found[name]) for name in ordered}


def by_source(turns: Sequence[SettledTurn]) -> dict[str, OutcomeShares]:
    """Shares of attempts per source of the candidate that was right, or else came first; most frequent first."""
    found: dict[str, list[SettledTurn]] = {}
    for turn in turns:
        if turn.attempted.source:
            found.setdefault(turn.attempted.source.partition("/")[0], []).append(turn)
    ordered = sorted(found, key=lambda name: (-len(found[name]), name))
    return {name: outcome_shares(found[name]) for name in ordered}


def program(command: str) -> str:
    words = command.split()
    return words[0] if words else "(empty)"
