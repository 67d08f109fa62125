"""Recorded sessions as token ids with roles: which tokens a policy samples and which a world model samples.

The ids are those of a rollout: the renderer that runs rollouts builds them, from the same texts, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from obsspec.render.terminal import TerminalRenderer
from obsspec.tasks.scripted import Manner
from obsspec.tasks.sessions import Session
from obsspec.values import Exchange, Observation, Tokens


class Role(StrEnum):
    """ACTION: a command or final answer, its control tokens included. OBSERVATION: the text and its closing token."""

    ACTION = "action"
    OBSERVATION = "observation"


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `start` to `stop` (exclusive) that one model samples in one go.

    `trivial`: an observation that says no more than that the command succeeded silently. `trained`: False for
    an action that is no example to follow.
    """

    start: int
    stop: int
    role: Role
    trivial: bool = False
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Example:
    """One session. Tokens outside the spans (instruction, opening of an observation) are given, not sampled."""

    ids: Tokens
    spans: tuple[Span, ...]

    def weights(self, policy: float, world: float) -> tuple[float, ...]:
        """One loss weight for each token: `policy` for actions, `world` for observations, 0 elsewhere."""
        out = [0.0] * len(self.ids)
        for span in self.spans:
            weight = policy if span.role is Role.ACTION else world
            out[span.start : span.stop] = [weight if span.trained else 0.0] * (span.stop - span.start)
        return tuple(out)


def encode(session: Session, renderer: TerminalRenderer) -> Example:
    """The whole session, from the instruction to the final answer if it has one."""
    ids = renderer.start(session.instruction)
    spans: list[Span] = []
    for exchange in session.exchanges:
        action = renderer.call(exchange.calls[0].command)
        spans.append(Span(len(ids), len(ids) + len(action), Role.ACTION, trained=_exemplary(session, exchange)))
        opened = renderer.open_observation(ids, action, ())
        ids = renderer.extend(ids, action, exchange.observations)
        trivial = is_trivial(exchange.observations[0])
        spans.append(Span(len(opened), len(ids), Role.OBSERVATION, trivial=trivial))
    if session.answer is not None:
        answer = renderer.answer(session.answer)
        spans.append(Span(len(ids), len(ids) + len(answer), Role.ACTION))
        ids = (*ids, *answer)
    return Example(ids, tuple(spans))


def encode_all(sessions: Iterable[Session], renderer: TerminalRenderer, max_tokens: int) -> list[Example]:
    """All sessions of at most `max_tokens` tokens; longer ones are left out, never cut."""
    examples = (encode(session, renderer) for session in sessions)
    return [example for example in examples if len(example.ids) <= max_tokens]


def is_trivial(observation: Observation) -> bool:
    """Whether the guess "it succeeds and prints nothing" gets this observation right."""
    return observation.empty and observation.exit_code == 0


def _exemplary(session: Session, exchange: Exchange) -> bool:
    """A blunderer's failing commands are its mistakes: good to predict the outcome of, bad to imitate."""
    return session.agent != Manner.BLUNDERER or exchange.observations[0].exit_code == 0
