"""Prediction sources of simulations: world models that are right, wrong, silent or late as often as stated.

Whether a source is right about a call is a function of the call, so all arms and settings meet the same luck, and a
source with a higher match is right wherever one with a lower match is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import anyio

from obsspec.protocols import Emit, Policy
from obsspec.sim import ids
from obsspec.sim.world import World, wrong
from obsspec.values import Context, Observation, Prediction, Priority, Sampling

LATE_S = 25.0  # longer than any tool runs, shorter than what counts as a failure
_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True)
class Skill:
    """Of a source, for one class of calls. `match`: how often its first candidate is right; `late`: how often it is not
    there in time; `silent`: how often it says nothing, all as shares of the calls. `latency_s`, `latency_sd_s`: of the
    predictions in time, lognormal. `fresh`: how often a further draw is a text of its own; `match_any`: how often one
    of all is right, if there are further ones."""

    match: float
    latency_s: float
    latency_sd_s: float = 0.0
    late: float = 0.0
    silent: float = 0.0
    fresh: float = 0.0
    match_any: float = 0.0

    @property
    def confidence(self) -> float:
        """That a candidate is right, once it is there."""
        said = 1 - self.late - self.silent
        return min(1.0, self.match / said) if said > 0 else 0.0


class StatedSource:
    """A source with latencies of its own: published or measured ones, or those of rules, memories and replicas.

    `skills` by command; "" stands for all others.
    """

    def __init__(self, name: str, world: World, skills: Mapping[str, Skill], *, salt: int = 0) -> None:
        self.name = name
        self._world = world
        self._skills = skills
        self._salt = salt

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        turn_id = context.completion[-1]
        skill = skill_of(self._skills, context)
        timely = ids.chance(turn_id, self._salt, 1)
        if timely < skill.silent:
            return
        await anyio.sleep(self._latency(skill, turn_id, timely))
        for text in candidates(self._world.truth(turn_id), skill, turn_id, self._salt, breadth):
            emit(Prediction((Observation(text),), self.name, skill.confidence))

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Its skill is given."""

    def _latency(self, skill: Skill, turn_id: int, timely: float) -> float:
        if timely < skill.silent + skill.late:
            return LATE_S
        return lognormal(skill.latency_s, skill.latency_sd_s, ids.chance(turn_id, self._salt, 2))


class ServedSource:
    """A language model as a source: its latency is that of a simulated server, shared with the policy or its own.

    It writes the tokens of the observation, on top of the policy's own history. Of `skills` only `match`, `silent`,
    `fresh` and `match_any` count.
    """

    def __init__(self, name: str, world: World, server: Policy, skills: Mapping[str, Skill], *, salt: int = 0) -> None:
        self.name = name
        self._world = world
        self._server = server
        self._skills = skills
        self._salt = salt

    async def predict(self, context: Context, breadth: int, emit: Emit) -> None:
        turn_id = context.completion[-1]
        skill = skill_of(self._skills, context)
        if ids.chance(turn_id, self._salt, 1) < skill.silent:
            return
        tokens = self._world.planned(turn_id).observation_tokens
        texts = candidates(self._world.truth(turn_id), skill, turn_id, self._salt, breadth)

        async def one(text: str) -> None:
            prompt = self._world.opened(context.prompt, context.completion)
            await self._server.generate(prompt, Sampling(tokens), priority=Priority.SPECULATIVE)
            emit(Prediction((Observation(text),), self.name, skill.confidence))

        if len(texts) == 1:
            await one(texts[0])
            return
        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(one, text)

    def learn(self, context: Context, observations: tuple[Observation, ...]) -> None:
        """Its skill is given."""


def skill_of(skills: Mapping[str, Skill], context: Context) -> Skill:
    found = skills.get(str(context.calls[0].arguments["command"]))
    return skills[""] if found is None else found


def candidates(truth: str, skill: Skill, turn_id: int, salt: int, breadth: int) -> list[str]:
    """The distinct texts that a source says: at least one."""
    fresh = sum(ids.chance(turn_id, salt, 10 + k) < skill.fresh for k in range(breadth - 1))
    luck = ids.chance(turn_id, salt, 3) * max(1e-9, 1 - skill.late - skill.silent)
    right = 0 if luck < skill.match else -1
    if right and fresh:
        some = 1 - (1 - skill.fresh) ** (breadth - 1)
        right = fresh if luck < skill.match + (skill.match_any - skill.match) / some else -1
    return [truth if k == right else wrong(truth, salt * 100 + k) for k in range(fresh + 1)]


def lognormal(mean: float, sd: float, u: float) -> float:
    """The quantile `u` of a lognormal distribution with this mean and standard deviation."""
    if mean <= 0 or sd <= 0:
        return max(0.0, mean)
    variance = math.log1p((sd / mean) ** 2)
    z = _STANDARD.inv_cdf(min(1 - 1e-9, max(1e-9, u)))
    return mean * math.exp(math.sqrt(variance) * z - variance / 2)
