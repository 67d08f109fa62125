"""Committed turns as training data for a world model: what is known of each, and which of them may be trained on.

`obsspec.train.transition_log` writes and follows them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from obsspec.protocols import Renderer
from obsspec.tasks.task import Split
from obsspec.train.encode import Example, Role, Span, is_trivial
from obsspec.values import ConfigError, Observation, Outcome, RenderError, StopReason, Tokens, ToolCall

Range = tuple[int, int]  # start and stop (exclusive) in `ids`


@dataclass(frozen=True, slots=True)
class Transition:
    """One committed turn, in the policy's own token ids.

    `ids` is all the policy had sampled or seen when the turn was over: history, action, frames of the observations.
    `action` is what the turn sampled. `targets` has one range for each observation, in call order: its text as the
    policy saw it with what closes it, exactly the tokens a world model writes after `Renderer.open_observation`. It is
    empty if the turn called nothing, or if the policy never saw what came of it.

    `policy_versions`: the weights of each turn so far, this one last. `outcome` is of the attempt to predict this
    turn, by `source` with weights `world_version`; None in the sequential pipeline and for turns without a call.
    (`step`, `writer`, `offset`) orders the turns of a log; `raw` of the observations is not kept.
    """

    rollout: str
    level: int
    step: int
    writer: str
    offset: int
    split: Split
    task_id: str
    image: str
    group: str
    ids: Tokens
    action: Range
    targets: tuple[Range, ...]
    calls: tuple[ToolCall, ...]
    observations: tuple[Observation, ...]
    policy_versions: tuple[str, ...]
    outcome: Outcome | None = None
    source: str = ""
    world_version: str = ""

    @property
    def order(self) -> tuple[int, str, int]:
        return self.step, self.writer, self.offset


@dataclass(frozen=True, slots=True)
class Ended:
    """A rollout of the log is over: why, with which reward; `error` is a part's, or why the rollout was dropped.

    `reward` is NaN where the writer was not told it.
    """

    rollout: str
    step: int
    writer: str
    offset: int
    stop: StopReason
    reward: float
    error: str = ""


class Reason(StrEnum):
    """Why a turn is not trained on."""

    SPLIT = "split"  # not a training task
    NO_CALL = "no call"  # a final answer, or a malformed call that no tool ever answered
    UNSEEN = "unseen"  # the policy never saw the observation: it did not fit the context
    TOO_LONG = "too long"
    TRUNCATED = "truncated"
    TIMED_OUT = "timed out"
    STATE_LOST = "state lost"
    MIXED_VERSIONS = "mixed versions"
    SECRET = "secret"


@dataclass(frozen=True, slots=True)
class FilterRules:
    """Which turns are trained on, by what their observations are; the policy saw all of them.

    What a command printed before it was stopped, or how a shell was lost, is an accident of timing. A truncated text
    is a fact, but a long one of which the middle is missing. All three are left out unless named here. Several policy
    versions within one rollout are no obstacle to predicting what its tools say. `secrets`: regular expressions;
    an observation in which one is found is no target. `max_tokens` of history and observations; None: any number.

    Raises `ConfigError` for what is no regular expression.
    """

    truncated: bool = False
    timed_out: bool = False
    state_lost: bool = False
    mixed_versions: bool = True
    secrets: tuple[str, ...] = ()
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for pattern in self.secrets:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"secret pattern {pattern!r} is no regular expression: {error}") from None


def trainable(transition: Transition, rules: FilterRules) -> Reason | None:
    """Why the turn is left out, by the first reason that applies; None if it is trained on."""
    seen = transition.observations
    tests = {
        Reason.SPLIT: transition.split is not Split.TRAIN,
        Reason.NO_CALL: not transition.calls,
        Reason.UNSEEN: not transition.targets,
        Reason.TOO_LONG: rules.max_tokens is not None and len(transition.ids) > rules.max_tokens,
        Reason.TRUNCATED: not rules.truncated and any(o.truncated for o in seen),
        Reason.TIMED_OUT: not rules.timed_out and any(o.timed_out for o in seen),
        Reason.STATE_LOST: not rules.state_lost and any(o.state_lost for o in seen),
        Reason.MIXED_VERSIONS: not rules.mixed_versions and len(set(transition.policy_versions)) > 1,
        Reason.SECRET: any(re.search(pattern, o.text) for pattern in rules.secrets for o in seen),
    }
    return next((reason for reason, applies in tests.items() if applies), None)


def examples(transitions: Iterable[Transition], rules: FilterRules) -> tuple[list[Example], Counter[Reason]]:
    """Turns as examples for training, and how many were left out, by reason.

    Turns of one rollout share one example: the ids of the last of them, with a span for each observation of a turn
    that is trained on, and no others. An example without spans is not made.
    """
    left_out = Counter[Reason]()
    rollouts: dict[str, list[Transition]] = {}
    for transition in transitions:
        reason = trainable(transition, rules)
        if reason is not None:
            left_out[reason] += 1
            continue
        rollouts.setdefault(transition.rollout, []).append(transition)
    return [_example(path) for turns in rollouts.values() for path in _paths(turns)], left_out


def _paths(turns: list[Transition]) -> list[list[Transition]]:
    """Turns by the path they lie on, the last one first: a rollout made again may have gone another way."""
    paths: list[list[Transition]] = []
    for turn in sorted(turns, key=lambda t: len(t.ids), reverse=True):
        path = next((p for p in paths if p[0].ids[: len(turn.ids)] == turn.ids), None)
        if path is None:
            paths.append([turn])
        else:
            path.append(turn)
    return paths


def _example(path: list[Transition]) -> Example:
    spans = [
        Span(start, stop, Role.OBSERVATION, trivial=is_trivial(observation))
        for turn in reversed(path)
        for (start, stop), observation in zip(turn.targets, turn.observations, strict=True)
    ]
    return Example(path[0].ids, tuple(spans))


def observation_ranges(
    renderer: Renderer, prompt: Tokens, action: Tokens, observations: Sequence[Observation], seen: Tokens
) -> tuple[Range, ...]:
    """Where in `seen`, the whole next prompt, a world model would write each observation.

    Empty if nowhere exactly, or if the renderer shows no place for it.

    A range begins where `open_observation` ends and reaches to the end of that observation's frame: through the stop
    token that ends it, where the format has one; where only the last of several frames is followed by one, the others
    end with their closing text.
    """
    try:
        return _ranges(renderer, prompt, action, observations, seen)
    except RenderError:
        return ()


def _ranges(
    renderer: Renderer, prompt: Tokens, action: Tokens, observations: Sequence[Observation], seen: Tokens
) -> tuple[Range, ...]:
    ranges: list[Range] = []
    for number in range(len(observations)):
        opened = renderer.open_observation(prompt, action, observations[:number])
        start = len(opened)
        if seen[:start] != opened:
            return ()
        stop = _stop(renderer, seen, start)
        if stop is None or number + 1 < len(observations):
            done = observations[: number + 1]
            ended = _ended(
                renderer.extend(prompt, action, done), renderer.open_observation(prompt, action, done), start
            )
            stop = ended if stop is None else min(stop, ended)
        ranges.append((start, stop))
    return tuple(ranges)


def _stop(renderer: Renderer, seen: Tokens, start: int) -> int | None:
    """Behind the first stop token; text encodes to ordinary tokens, so it is none of the observation's."""
    stops = frozenset(renderer.observation_stop_ids)
    return next((i + 1 for i in range(start, len(seen)) if seen[i] in stops), None)


def _ended(left: Tokens, right: Tokens, start: int) -> int:
    """Where two prompts part whose observations are the same, and what follows those is not."""
    shorter = min(len(left), len(right))
    return next((i for i in range(start, shorter) if left[i] != right[i]), shorter)
